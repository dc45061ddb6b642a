"""The events that the reactor waits for, as epoll's numbers, because `select` has names for them on Linux
only.
"""

from __future__ import annotations

from typing import Final, Protocol

READ: Final = 0x001  # EPOLLIN
WRITE: Final = 0x004  # EPOLLOUT
LEFT: Final = 0x2000  # EPOLLRDHUP: the peer has closed its half; reported while it is watched for
BROKEN: Final = 0x008 | 0x010  # EPOLLERR | EPOLLHUP: always reported


class Poll(Protocol):
    """The part of `select.epoll` that the reactor uses; tests simulate one without a kernel."""

    def register(self, fd: int, eventmask: int) -> None:
        """Watch the descriptor `fd` for READ, WRITE, both or neither."""

    def modify(self, fd: int, eventmask: int) -> None:
        """Change the events that `fd` is watched for."""

    def unregister(self, fd: int) -> None:
        """Stop watching `fd`."""

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """Return ready (fd, events) pairs. Wait for the first one for at most `timeout` (s), without limit if
        None.
        """

    def fileno(self) -> int:
        """Return a descriptor that is readable while some watched descriptor is ready."""

    def close(self) -> None:
        """Close the poll's own descriptor; the watched descriptors stay open."""
