"""Readiness of sockets: epoll where the system has it, else whatever `selectors` offers, in epoll's terms."""

from __future__ import annotations

import select
import selectors
from typing import Final, Protocol

READ: Final = 0x001  # EPOLLIN
WRITE: Final = 0x004  # EPOLLOUT
BROKEN: Final = 0x008 | 0x010  # EPOLLERR | EPOLLHUP: reported whether asked for or not


class PollSet(Protocol):
    """The part of `select.epoll` that the reactor uses."""

    def register(self, fd: int, eventmask: int) -> None:
        """Watch `fd` for READ, WRITE, both or neither."""

    def modify(self, fd: int, eventmask: int) -> None:
        """Change what `fd` is watched for."""

    def unregister(self, fd: int) -> None:
        """Forget `fd`."""

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """Return ready (fd, events) pairs; wait at most `timeout` seconds for the first, None: for ever."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while some fd is ready."""

    def close(self) -> None:
        """Release the set's own descriptor."""


class SelectorPollSet:
    """A PollSet over `selectors`, for systems without epoll; level-triggered as well."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._selector = selector or selectors.DefaultSelector()
        self._watched: dict[int, int] = {}

    def register(self, fd: int, eventmask: int) -> None:
        """Watch `fd`; an empty mask is remembered, for selectors refuse one."""
        self._watched[fd] = eventmask
        if eventmask:
            self._selector.register(fd, _to_selectors(eventmask))

    def modify(self, fd: int, eventmask: int) -> None:
        """Change what `fd` is watched for."""
        self.unregister(fd)
        self.register(fd, eventmask)

    def unregister(self, fd: int) -> None:
        """Forget `fd`."""
        if self._watched.pop(fd):
            self._selector.unregister(fd)

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """Return ready (fd, events) pairs."""
        del maxevents
        return [(key.fd, _from_selectors(events)) for key, events in self._selector.select(timeout)]

    def fileno(self) -> int:
        """Return the selector's descriptor (kqueue has one; poll and select do not)."""
        fileno: int = self._selector.fileno()  # type: ignore[attr-defined]  # kqueue's, absent from the base class
        return fileno

    def close(self) -> None:
        """Close the selector."""
        self._selector.close()


def _to_selectors(events: int) -> int:
    return (selectors.EVENT_READ if events & READ else 0) | (selectors.EVENT_WRITE if events & WRITE else 0)


def _from_selectors(events: int) -> int:
    return (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0)


def new_poll_set() -> PollSet:
    """Return the fastest poll set that this system has."""
    return select.epoll() if hasattr(select, "epoll") else SelectorPollSet()
