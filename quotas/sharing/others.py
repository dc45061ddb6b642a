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
JUMP_MAX: Final = 1000
"""Maximum number of reports that may be missing between two of a Weir, besides one for each ms between them.
A Weir sends at most 20 reports (of 200,000 limiters) every 50 ms.
"""
REFUSED_MS: Final = 3000
"""Time (ms) for which reports of a Weir, or its totals of a limiter, may contradict former ones. They are
believed after that: a forged report has preceded them.
"""
REASONS: Final = ("unreadable", "forged", "jumped", "repeated", "negative", "senders", "limiters")
"""Reasons for ignoring reports and usages."""
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

    __slots__ = ("heard_ms", "late_until_ms", "refused_ms", "sequence", "totals")

    def __init__(self, sequence: int) -> None:
        self.heard_ms = 0
        """Time (ms) of the last report that was not ignored."""
        self.refused_ms: int | None = None
        """Time (ms) of the first report that was ignored since then; None if each was charged."""
        self.late_until_ms = 0
        """Time (ms) until which reports tell usage of the time before."""
        self.sequence = sequence - 1
        """Sequence of that report. It begins below the first one, so that this one follows."""
        self.totals: dict[int, tuple[float, int]] = {}
        """Number of a limiter → (units, time in ms of the last report about it)."""

    def refusal(self, sequence: int, at_ms: int) -> str:
        """Return the reason for ignoring a report with this sequence; empty if it is to be charged."""
        missing = sequence - self.sequence - 1
        reason = "repeated" if missing < 0 else "jumped" if missing > JUMP_MAX + at_ms - self.heard_ms else ""
        if not reason:
            self.refused_ms = None
        elif self.refused_ms is None:
            self.refused_ms = at_ms
        elif at_ms - self.refused_ms >= REFUSED_MS:
            # If a forged report is taken for one of this Weir, all true ones seem to be repeated. Else true
            # ones come between the ignored ones, so that this place is not reached.
            self.refused_ms = None
            return ""
        return reason


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
        self.sent = 0
        """Number of own reports that were sent. Set it before a report is sent, from any thread."""
        self.read_back = -1
        """Sequence of the newest own report that was read back; -1 before the first one."""
        self._returned: list[int] = []

    def take(self, report: Report, now_ms: int, at_ms: int | None = None) -> None:
        """Count a report that was read at `now_ms`. Its units count as used at `at_ms`; None for now."""
        if self.is_own(report):
            self._take_own(report.sequence)
            return
        at_ms = now_ms if at_ms is None else at_ms
        sender = self._sender(report)
        if sender is None:
            self.ignored["senders"] += 1
        elif reason := sender.refusal(report.sequence, at_ms):
            self.ignored[reason] += 1
        else:
            if at_ms - sender.heard_ms >= SILENT_MS:
                sender.late_until_ms = at_ms + LATE_MS
            sender.heard_ms, sender.sequence = at_ms, report.sequence
            self._take(sender, report, now_ms, at_ms)
        self._forget(now_ms)

    def is_own(self, report: Report) -> bool:
        """Return True if the report names this process. Somebody else may have written it."""
        return (report.weir, report.incarnation) == self._own

    def _take_own(self, sequence: int) -> None:
        if sequence >= self.sent:
            self.ignored["forged"] += 1
        elif sequence <= self.read_back:
            self.ignored["repeated"] += 1
        else:
            self.read_back = sequence
            self._returned.append(sequence)

    def _sender(self, report: Report) -> _Sender | None:
        key = (report.weir, report.incarnation)
        sender = self._senders.get(key)
        if sender is None and len(self._senders) < SENDERS_MAX:
            sender = self._senders[key] = _Sender(report.sequence)
        return sender

    def _take(self, sender: _Sender, report: Report, now_ms: int, at_ms: int) -> None:
        for limiter, total, recent in report.usages:
            before, heard_ms = sender.totals.get(limiter, (-1.0, now_ms))
            known = before >= 0 and now_ms - heard_ms < (KEPT_MS if total >= before else REFUSED_MS)
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
