"""OwnUsage: what the clients of this Weir have used, and the reports that are due about it."""
# mypyc: skip, because no request calls it.

from __future__ import annotations

from collections import deque
from typing import Final

from weir.quotas.sharing.report import USAGES_MAX, Report, Usage

EPSILON: Final = 0.02
"""Share of a window's units that all Weirs together may leave unreported for longer than `PAUSE_MS`."""
PAUSE_MS: Final = 50
"""Minimum time (ms) between two reports."""
PERIOD_MS: Final = 500
"""Time (ms) after which a report is due in any case."""
RECENT_MS: Final = 10_000
"""Time (ms) that `Usage.recent` covers at least."""
STEP_MS: Final = 1000
"""Time (ms) between two kept totals of a limiter."""
KEPT_MS: Final = 600_000
"""Time (ms) for which the total of an unused limiter is kept. Others forget it earlier (`others.KEPT_MS`), so
that a total that begins at 0 again is no decrease for them.
"""


class _Total:
    """Units of one limiter since the start of this incarnation."""

    __slots__ = ("changed_ms", "former", "reported", "units")

    def __init__(self, now_ms: int) -> None:
        self.units = 0.0
        self.reported = 0.0
        self.changed_ms = now_ms
        self.former: deque[tuple[int, float]] = deque([(now_ms, 0.0)])
        """(Time in ms, units until then), the oldest first: one pair per `STEP_MS`."""

    def note(self, units: float, now_ms: int) -> None:
        """Add units that were used since the last call."""
        self.changed_ms = now_ms
        if now_ms - self.former[-1][0] >= STEP_MS:
            self.former.append((now_ms, self.units))
        while len(self.former) > 1 and self.former[1][0] <= now_ms - RECENT_MS:
            self.former.popleft()
        self.units += units

    @property
    def recent(self) -> float:
        """Units since the oldest kept time, which is about ten seconds ago."""
        return min(max(self.units - self.former[0][1], 0.0), self.units)


class OwnUsage:
    """Totals of the usage of this Weir's clients, by the numbers of their limiters."""

    def __init__(self, weir: str, incarnation: int) -> None:
        """Begin without usage; `weir` and `incarnation` name this Weir in its reports."""
        self.weir: Final = weir
        self.incarnation: Final = incarnation
        self.units = 0.0
        """Sum of the units of all limiters, for metrics."""
        self._totals: dict[int, _Total] = {}
        self._changed: dict[int, None] = {}
        self._sequence = 0
        self._last_ms: int | None = None
        """Time (ms) of the last report; None before the first one."""
        self._is_urgent = False
        self._next_forget_ms = 0

    def note(self, limiter: int, units: float, window_units: float, weirs: int, now_ms: int) -> None:
        """Count units that clients have used; negative units were given back. `window_units`: units that the
        limit allows in a window. `weirs`: number of Weirs that share the limit.
        """
        total = self._totals.get(limiter)
        if total is None:
            total = self._totals[limiter] = _Total(now_ms)
        total.note(units, now_ms)
        self.units += units
        if total.units > total.reported:  # a total never decreases in reports
            self._changed[limiter] = None
            if total.units - total.reported >= EPSILON * window_units / max(weirs, 1):
                self._is_urgent = True

    def due(self, now_ms: int) -> list[Report]:
        """Return the reports to send now: none, one, or several if many limiters have changed."""
        if self._last_ms is not None:
            waited_ms = now_ms - self._last_ms
            if waited_ms < (PAUSE_MS if self._is_urgent else PERIOD_MS):
                return []
        self._last_ms, self._is_urgent = now_ms, False
        usages = [self._usage(limiter) for limiter in self._changed]
        self._changed.clear()
        self._forget(now_ms)
        return [self._report(tuple(some)) for some in _parts(usages)]

    def hurry(self) -> None:
        """Make a report due now, such as the last one before the end."""
        self._last_ms = None

    def _usage(self, limiter: int) -> Usage:
        total = self._totals[limiter]
        total.reported = total.units
        return Usage(limiter, total.units, total.recent)

    def _report(self, usages: tuple[Usage, ...]) -> Report:
        report = Report(self.weir, self.incarnation, self._sequence, usages)
        self._sequence += 1
        return report

    def _forget(self, now_ms: int) -> None:
        if now_ms < self._next_forget_ms:
            return
        self._next_forget_ms = now_ms + KEPT_MS // 10
        old_ms = now_ms - KEPT_MS
        for limiter in [each for each, total in self._totals.items() if total.changed_ms < old_ms]:
            del self._totals[limiter]


def _parts(usages: list[Usage]) -> list[list[Usage]]:
    """Return the usages in lists for one report each; one empty list for no usages."""
    firsts = range(0, max(len(usages), 1), USAGES_MAX)
    return [usages[first : first + USAGES_MAX] for first in firsts]
