"""The events that the reactor waits for, in epoll's numbers: `select` names these on Linux only."""

from __future__ import annotations

from typing import Final

READ: Final = 0x001  # EPOLLIN
WRITE: Final = 0x004  # EPOLLOUT
BROKEN: Final = 0x008 | 0x010  # EPOLLERR | EPOLLHUP: reported whether asked for or not
