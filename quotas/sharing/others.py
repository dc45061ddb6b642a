"""OthersUsage: what other Weirs report, as units to charge here.

A former incarnation of this Weir counts as another Weir: so a restart gives no client its quota again.
"""
# mypyc: skip, because no request calls it.

from __future__ import annotations

import math
from collections import Counter
from typing import Final, NamedTuple

from weir.quotas.sharing.report import Report

HEARD_MS: Final = 10_000
"""Time (ms) for which a Weir counts as present after its last report."""
KEPT_MS: Final = 60_000
"""Time (ms) for which the total of a limiter is kept after the last report about it."""
ACTIVE_MS: Final = 60_000
"""Time (ms) for which a Weir counts as one whose clients use a limiter, after its last report about it."""
NEVER: Final = (0.0, -math.inf)
"""Total and time (ms) of a limiter about which there was no report."""
SENDERS_MAX: Final = 1000
"""Maximum number of incarnations whose totals are kept."""
TOTALS_MAX: Final = 200_000
"""Maximum number of limiters whose totals are kept, of one incarnation."""
SILENT_MS: Final = 1500
"""Time (ms) between two reports of a Weir above which reports were lost: one is due every 500 ms."""
LATE_MS: Final = 3000
"""Time (ms) after such a silence in which reports tell usage of the time before: lost ones are repeated."""
MERGED_MS: Final = 500
"""Charges of a limiter within this time (ms) are added up, and count from the first one on."""


class Charge(NamedTuple):
    """Units that clients of other Weirs have used."""

    at_ms: int
    """Time (ms) at which they count as used."""
    units: float
    weirs: int = 1
    """Number of other Weirs whose clients have used the limiter within `ACTIVE_MS`."""
    is_late: bool = False
    """True if clients may have used the units seconds ago: the Weir was silent, or the limiter's former total
    is not known here.
    """


def add_charge(charges: list[Charge], charge: Charge, within_ms: int) -> None:
    """Append a charge of one limiter. If it comes within `within_ms` after the last one, add it to that."""
    last = charges[-1] if charges else None
    if last and charge.at_ms - last.at_ms <= within_ms and charge.is_late == last.is_late:
        charges.pop()
        charge = charge._replace(at_ms=last.at_ms, units=last.units + charge.units)
    charges.append(charge)


class _Sender:
    """Last totals of one incarnation of a Weir."""

    __slots__ = ("heard_ms", "late_until_ms", "sequence", "totals")

    def __init__(self) -> None:
        self.heard_ms = 0
        self.late_until_ms = 0
        """Time (ms) until which reports tell usage of the time before."""
        self.sequence = -1
        self.totals: dict[int, tuple[float, int]] = {}
        """Number of a limiter → (units, time in ms of the last report about it)."""


class OthersUsage:
    """Differences between the reports of other Weirs. One thread uses it."""

    def __init__(self, weir: str, incarnation: int) -> None:
        """Begin without reports; `weir` and `incarnation` name this Weir, whose own reports are not
        charged.
        """
        self._own = (weir, incarnation)
        self._senders: dict[tuple[str, int], _Sender] = {}
        self._charges: dict[int, list[Charge]] = {}
        self._next_forget_ms = 0
        self.ignored: Counter[str] = Counter()
        """Number of reports and usages that were not charged, by reason."""
        self.read_back = -1
        """Sequence of the newest own report that was read back; -1 before the first one."""
        self._returned: list[int] = []

    def take(self, report: Report, now_ms: int, at_ms: int | None = None) -> None:
        """Count a report that was read at `now_ms`. Its units count as used at `at_ms`; None for now."""
        key = (report.weir, report.incarnation)
        sender = self._senders.get(key)
        if sender is None:
            if len(self._senders) >= SENDERS_MAX:
                self.ignored["senders"] += 1
                return
            sender = self._senders[key] = _Sender()
        at_ms = now_ms if at_ms is None else at_ms
        if at_ms - sender.heard_ms >= SILENT_MS:
            sender.late_until_ms = at_ms + LATE_MS
        sender.heard_ms = at_ms
        if key == self._own:
            self.read_back = max(self.read_back, report.sequence)
            self._returned.append(report.sequence)
            return
        if report.sequence > sender.sequence:  # else a report that arrives again
            sender.sequence = report.sequence
            self._take(sender, report, now_ms, at_ms)
        self._forget(now_ms)

    def _take(self, sender: _Sender, report: Report, now_ms: int, at_ms: int) -> None:
        for limiter, total, recent in report.usages:
            before, heard_ms = sender.totals.get(limiter, (-1.0, now_ms))
            known = before >= 0 and now_ms - heard_ms < KEPT_MS
            units = total - before if known else recent
            if units < 0:
                self.ignored["negative"] += 1
                continue
            if before < 0 and len(sender.totals) >= TOTALS_MAX:
                self.ignored["limiters"] += 1
                continue
            sender.totals[limiter] = (total, now_ms)
            if units > 0:
                is_late = not known or at_ms < sender.late_until_ms
                self._charge(limiter, Charge(at_ms, units, self._active(limiter, now_ms), is_late))

    def _active(self, limiter: int, now_ms: int) -> int:
        """Return the number of other Weirs that have reported usage of this limiter within `ACTIVE_MS`. A
        Weir that has restarted counts once, and a former process of this Weir does not count.
        """
        active = {
            weir
            for (weir, _), sender in self._senders.items()
            if now_ms - sender.totals.get(limiter, NEVER)[1] < ACTIVE_MS
        }
        return len(active - {self._own[0]})

    def _charge(self, limiter: int, charge: Charge) -> None:
        add_charge(self._charges.setdefault(limiter, []), charge, MERGED_MS)

    def charges(self) -> dict[int, list[Charge]]:
        """Return what was reported since the last call: the charges of each limiter, the oldest first."""
        charges, self._charges = self._charges, {}
        return charges

    def returned(self) -> list[int]:
        """Return the sequences of the own reports that were read back since the last call."""
        returned, self._returned = self._returned, []
        return returned

    def weirs(self, now_ms: int) -> int:
        """Return the number of Weirs, this one included, that were heard within `HEARD_MS`."""
        since_ms = now_ms - HEARD_MS
        heard = {weir for (weir, _), sender in self._senders.items() if sender.heard_ms > since_ms}
        return len(heard | {self._own[0]})

    def _forget(self, now_ms: int) -> None:
        """Forget totals and incarnations about which no report came for `KEPT_MS`."""
        if now_ms < self._next_forget_ms:
            return
        self._next_forget_ms = now_ms + KEPT_MS // 6
        old_ms = now_ms - KEPT_MS
        for key in [each for each, sender in self._senders.items() if sender.heard_ms < old_ms]:
            del self._senders[key]
        for sender in self._senders.values():
            for limiter in [each for each, (_, heard_ms) in sender.totals.items() if heard_ms < old_ms]:
                del sender.totals[limiter]
