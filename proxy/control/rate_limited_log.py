"""Limit log lines that peers can cause at any rate: the first event of a kind is logged at once, later events
at most once a second, with their number.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from typing import Final

from weir.proxy.logs import Write
from weir.proxy.net.reactor import Reactor, Timer

PERIOD_MS: Final = 1000


class _Pending:
    """Events of one kind that were counted since the last log line about this kind."""

    __slots__ = ("count", "details", "timer", "write")

    def __init__(self, write: Write, timer: Timer) -> None:
        self.write = write
        self.timer = timer
        self.count = 0
        self.details: Mapping[str, object] = {}

    def write_counted(self) -> None:
        """Write one line for the events counted since the last line, if there were any."""
        count, self.count = self.count, 0
        if count:
            self.write(count, self.details)


class RateLimitedLog:
    """Writes log lines about events, at most one a second for each kind; counts the events between two lines.
    There is one object per process. It remembers every kind, so peers must not be able to make up kinds.
    """

    def __init__(self, reactor: Reactor) -> None:
        """Begin with no events. The reactor's timers tell when a second has passed."""
        self._reactor = reactor
        self._pending: dict[Hashable, _Pending] = {}

    def note(self, kind: Hashable, write: Write, details: Mapping[str, object]) -> None:
        """Count one event of this kind. Write its line now, or after at most a second together with other
        events if this kind was logged less than a second ago.
        """
        pending = self._pending.get(kind)
        if pending is None:
            self._pending[kind] = _Pending(write, self._call_soon(kind))
            write(1, details)
        else:
            pending.count += 1
            pending.details = details

    def close(self) -> None:
        """Write the lines for all events counted so far."""
        for pending in self._pending.values():
            pending.timer.cancel()
            pending.write_counted()
        self._pending.clear()

    def _call_soon(self, kind: Hashable) -> Timer:
        timer = self._reactor.call_at(self._reactor.now_ms + PERIOD_MS, partial(self._due, kind))
        self._reactor.wake()  # the wait in progress does not include the new timer
        return timer

    def _due(self, kind: Hashable) -> None:
        pending = self._pending[kind]
        if pending.count:
            pending.timer = self._call_soon(kind)
            pending.write_counted()
        else:
            del self._pending[kind]
