"""Limit log lines that peers can cause at any rate: the first event of a kind is logged at once, later events
at most once a second, with their number.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from weir.proxy.logs import Write

PERIOD_S: Final = 1.0
"""Time (s) between two calls of `look`."""


class _Pending:
    """Events of one kind that were counted since the last log line about this kind."""

    __slots__ = ("count", "details", "is_new", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.is_new = True
        """True until the first look: the first line may be younger than a second then."""
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

    def __init__(self) -> None:
        self._pending: dict[Hashable, _Pending] = {}

    def note(self, kind: Hashable, write: Write, details: Mapping[str, object]) -> None:
        """Count one event of this kind. Write its line now; if this kind was logged a short time ago, write
        it at a later look, within two seconds, together with other events.
        """
        pending = self._pending.get(kind)
        if pending is None:
            self._pending[kind] = _Pending(write)
            write(1, details)
        else:
            pending.count += 1
            pending.details = details

    async def look(self) -> None:
        """Write the lines for the events that were counted since the last look; call it every `PERIOD_S`."""
        for kind, pending in list(self._pending.items()):
            if pending.is_new:
                pending.is_new = False
            elif pending.count:
                pending.write_counted()
            else:
                del self._pending[kind]

    def close(self) -> None:
        """Write the lines for all events counted so far."""
        for pending in self._pending.values():
            pending.write_counted()
        self._pending.clear()
