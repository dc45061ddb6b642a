"""OwnUsage: usage of the clients of this Weir, and the reports that are due about it.

A report may be lost: the topic is closed, or its leader changes. The next report about a limiter makes up for
a lost one, but a limiter that is not used again has no next report. So each limiter of a report is reported
again until a report about it was read back.
"""
# mypyc: skip, because no request calls it.

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import islice
from typing import Final, NamedTuple

from weir.quotas.sharing.report import USAGES_MAX, LimiterUsage, UsageReport

EPSILON: Final = 0.02
"""Share of a window's units that all Weirs together may leave unreported for longer than `PAUSE_MS`."""
PAUSE_MS: Final = 50
"""Minimum time (ms) between two reports."""
PERIOD_MS: Final = 500
"""Time (ms) after which a report is due in any case."""
RECENT_MS: Final = 10_000
"""Time (ms) that `LimiterUsage.recent` covers at least."""
REPEAT_MS: Final = 2000
"""Time (ms) after which a report that was not read back counts as lost: reports travel for up to a second."""
SENT_MAX: Final = 1000
"""Maximum number of reports that were not read back, and whose times are kept."""
MEMORY_MS: Final = 11_000
"""Time (ms) for which usage counts by default. Lost reports of older usage are not repeated."""
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

    def usage(self, limiter: int) -> LimiterUsage:
        """Return the usage to report. A reported total never decreases, also if units were given back. The
        recent units are those since the oldest kept time, about ten seconds before the last use.
        """
        self.reported = max(self.reported, self.units)
        return LimiterUsage(
            limiter, self.reported, min(max(self.units - self.former[0][1], 0.0), self.reported)
        )


class _Sent(NamedTuple):
    """A report that was not read back yet, nor a later one."""

    at_ms: int
    limiters: list[int]
    """Limiters to report again if this report counts as lost; empty if it does already."""


class OwnUsage:
    """Totals of the usage of this Weir's clients, by the numbers of their limiters."""

    def __init__(self, weir: str, incarnation: int, memory_ms: int = MEMORY_MS) -> None:
        """Begin without usage; `weir` and `incarnation` name this Weir in its reports. `memory_ms`: time (ms)
        for which usage counts.
        """
        self.weir: Final = weir
        self.incarnation: Final = incarnation
        self.units = 0.0
        """Sum of the units of all limiters, for metrics."""
        self._totals: dict[int, _Total] = {}
        self._memory_ms = memory_ms
        self._changed: dict[int, None] = {}
        """Limiters to report, in the order of their changes."""
        self._sent: dict[int, _Sent] = {}
        """Sequence → report that was not read back yet, the oldest first. At most `SENT_MAX` of them have no
        limiters.
        """
        self._closed = False
        """True if the last report did not leave. Then only one report is tried at a time."""
        self.sequence = 0
        """Sequence of the next report."""
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

    def due(self, now_ms: int) -> list[UsageReport]:
        """Return the reports to send now: none, one, or several if many limiters have changed. The caller
        calls `unsent` for a report that does not leave.
        """
        if self._last_ms is not None:
            waited_ms = now_ms - self._last_ms
            if waited_ms < (PAUSE_MS if self._is_urgent and not self._closed else PERIOD_MS):
                return []
        self._last_ms, self._is_urgent = now_ms, False
        self._forget(now_ms)
        for sequence in [each for each, sent in self._sent.items() if now_ms - sent.at_ms >= REPEAT_MS]:
            self._report_again(sequence)
        settled = [each for each, sent in self._sent.items() if not sent.limiters]
        for sequence in settled[: max(len(settled) - SENT_MAX, 0)]:
            del self._sent[sequence]
        limiters = list(islice(self._changed, USAGES_MAX)) if self._closed else list(self._changed)
        for limiter in limiters:
            del self._changed[limiter]
        oldest_ms = now_ms - self._memory_ms
        counting = [each for each in limiters if self._totals[each].changed_ms > oldest_ms]
        return [self._report(some, now_ms) for some in _parts(counting)]

    def unsent(self, sequence: int) -> None:
        """Note that the report with this sequence did not leave: its limiters are reported again."""
        self._closed = True
        self._report_again(sequence)

    def returned(self, sequences: Collection[int]) -> int | None:
        """Note that the reports with these sequences were read back. Former reports that were not read back
        are lost, so their limiters are reported again. Return the time (ms) of the newest report; None if no
        report was read back, or a later one before.
        """
        self._closed = False
        newest = max(sequences, default=-1)
        found = self._sent.get(newest)
        for sequence in sequences:
            self._sent.pop(sequence, None)
        for sequence in [each for each in self._sent if each < newest]:
            self._report_again(sequence)
            del self._sent[sequence]
        return None if found is None else found.at_ms

    def waits_since_ms(self) -> int | None:
        """Return the time (ms) of the oldest report that was not read back, nor a later one; None if all
        were.
        """
        return next((sent.at_ms for sent in self._sent.values()), None)

    def _report_again(self, sequence: int) -> None:
        sent = self._sent.get(sequence)
        if sent is not None and sent.limiters:
            self._changed |= dict.fromkeys(each for each in sent.limiters if each in self._totals)
            self._sent[sequence] = _Sent(sent.at_ms, [])

    def hurry(self) -> None:
        """Make a report due now, such as the last one before the end."""
        self._last_ms = None

    def _report(self, limiters: list[int], now_ms: int) -> UsageReport:
        usages = tuple(self._totals[limiter].usage(limiter) for limiter in limiters)
        report = UsageReport(self.weir, self.incarnation, self.sequence, usages)
        self._sent[self.sequence] = _Sent(now_ms, limiters)
        self.sequence += 1
        return report

    def _forget(self, now_ms: int) -> None:
        if now_ms < self._next_forget_ms:
            return
        self._next_forget_ms = now_ms + KEPT_MS // 10
        old_ms = now_ms - KEPT_MS
        for limiter in [each for each, total in self._totals.items() if total.changed_ms < old_ms]:
            del self._totals[limiter]
            self._changed.pop(limiter, None)


def _parts(limiters: list[int]) -> list[list[int]]:
    """Return the limiters in lists for one report each; one empty list for no limiters."""
    firsts = range(0, max(len(limiters), 1), USAGES_MAX)
    return [limiters[first : first + USAGES_MAX] for first in firsts]
