"""Log lines that peers can cause at any rate: the first of a kind at once, then at most one a second, with a
count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final, TypeAlias

from proxy.net.reactor import Reactor, Timer

PERIOD_MS: Final = 1000

Write: TypeAlias = Callable[[int, Mapping[str, object]], None]
"""(count, details of the latest event): writes one line."""

Note: TypeAlias = Callable[[Hashable, Write, Mapping[str, object]], None]
"""The type of `RateLimitedLog.note`."""


class _Pending:
    """Events since the last line of their kind."""

    __slots__ = ("count", "details", "timer", "write")

    def __init__(self, write: Write, timer: Timer) -> None:
        self.write = write
        self.timer = timer
        self.count = 0
        self.details: Mapping[str, object] = {}

    def write_counted(self) -> None:
        """Write one line for all events counted since the last."""
        count, self.count = self.count, 0
        if count:
            self.write(count, self.details)


class RateLimitedLog:
    """Writes or counts log lines; one per process. There must be few kinds, whatever peers do."""

    def __init__(self, reactor: Reactor) -> None:
        """Measure seconds with the reactor's timers."""
        self._reactor = reactor
        self._pending: dict[Hashable, _Pending] = {}

    def note(self, kind: Hashable, write: Write, details: Mapping[str, object]) -> None:
        """Count one event: write a line now, or within a second."""
        pending = self._pending.get(kind)
        if pending is None:
            self._pending[kind] = _Pending(write, self._call_soon(kind))
            write(1, details)
        else:
            pending.count += 1
            pending.details = details

    def close(self) -> None:
        """Write lines for all counted events."""
        for pending in self._pending.values():
            pending.timer.cancel()
            pending.write_counted()
        self._pending.clear()

    def _call_soon(self, kind: Hashable) -> Timer:
        timer = self._reactor.call_at(self._reactor.now_ms + PERIOD_MS, partial(self._due, kind))
        self._reactor.wake()  # its current wait does not include the new timer
        return timer

    def _due(self, kind: Hashable) -> None:
        pending = self._pending[kind]
        if pending.count:
            pending.timer = self._call_soon(kind)
            pending.write_counted()
        else:
            del self._pending[kind]
