"""Log lines that peers can cause as often as they like: the first of a kind at once, then one a second at
most, with a count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final, TypeAlias

from proxy.net.reactor import Reactor, Timer

PERIOD_MS: Final = 1000

Write: TypeAlias = Callable[[int, Mapping[str, object]], None]
"""(how many times it happened, details of the latest): writes one line."""

Note: TypeAlias = Callable[[Hashable, Write, Mapping[str, object]], None]
"""`RateLimitedLog.note`."""


class _Pending:
    """What has happened since the last line of its kind."""

    __slots__ = ("count", "details", "timer", "write")

    def __init__(self, write: Write, timer: Timer) -> None:
        self.write = write
        self.timer = timer
        self.count = 0
        self.details: Mapping[str, object] = {}

    def write_counted(self) -> None:
        """Write one line for all that was only counted."""
        count, self.count = self.count, 0
        if count:
            self.write(count, self.details)


class RateLimitedLog:
    """Writes or counts; one per process. Kinds must be few, whatever peers do."""

    def __init__(self, reactor: Reactor) -> None:
        """The reactor's timers say when a second has passed."""
        self._reactor = reactor
        self._pending: dict[Hashable, _Pending] = {}

    def note(self, kind: Hashable, write: Write, details: Mapping[str, object]) -> None:
        """It happened once (more): write a line now, or within a second."""
        pending = self._pending.get(kind)
        if pending is None:
            self._pending[kind] = _Pending(write, self._call_soon(kind))
            write(1, details)
        else:
            pending.count += 1
            pending.details = details

    def close(self) -> None:
        """Write what is still only counted."""
        for pending in self._pending.values():
            pending.timer.cancel()
            pending.write_counted()
        self._pending.clear()

    def _call_soon(self, kind: Hashable) -> Timer:
        timer = self._reactor.call_at(self._reactor.now_ms + PERIOD_MS, partial(self._due, kind))
        self._reactor.wake()  # its present wait does not know of the timer
        return timer

    def _due(self, kind: Hashable) -> None:
        pending = self._pending[kind]
        if pending.count:
            pending.timer = self._call_soon(kind)
            pending.write_counted()
        else:
            del self._pending[kind]
