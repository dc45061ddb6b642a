"""OthersUsage: what other Weirs report, as units to charge here.

A former incarnation of this Weir counts as another Weir: so a restart gives no client its quota again.
"""
# mypyc: skip, because no request calls it.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from weir.quotas.sharing.report import LimiterUsage, UsageReport

HEARD_MS: Final = 10_000
"""Time (ms) for which a Weir counts as present after its last report."""
KEPT_MS: Final = 60_000
"""Time (ms) for which the total of a limiter is kept after the last report about it."""
ACTIVE_MS: Final = 60_000
"""Time (ms) for which a Weir counts as one whose clients use a limiter, after its last report about it."""
WEIRS_MAX: Final = 32
"""Maximum number of Weirs that share quotas, this one included."""
INCARNATIONS_MAX: Final = 4
"""Maximum number of incarnations of a Weir whose totals are kept. Those that were silent for longest are
forgotten.
"""
TOTALS_MAX: Final = 200_000
"""Maximum number of limiters whose totals are kept, of one incarnation."""
TOTALS_ALL_MAX: Final = 1_000_000
"""Maximum number of kept totals: some 300 MB."""
STEP: Final = 500
"""Number of usages that are taken in one step: some 2 ms."""
CHARGED_MAX: Final = 200
"""Maximum number of limiters that are charged at once: some 2 ms."""
CROWD: Final = 10_000
"""Number of limiters with charges above which those of a limiter are all added up: so that they need less
memory if somebody reports more than can be charged.
"""
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
REASONS: Final = ("unreadable", "unsigned", "forged", "jumped", "repeated", "negative", "weirs", "limiters")
"""Reasons for ignoring reports and usages."""
MERGED_MS: Final = 500
"""Charges of a limiter within this time (ms) are added up, and count from the first one on."""


class OthersCharge(NamedTuple):
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


def add_charge(charges: list[OthersCharge], charge: OthersCharge, within_ms: int) -> None:
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

    def refusal(self, sequence: int, at_ms: int, *, is_signed: bool) -> str:
        """Return the reason for ignoring a report with this sequence; empty if it is to be charged."""
        missing = sequence - self.sequence - 1
        reason = "repeated" if missing < 0 else ""
        if is_signed:
            return reason
        if missing > JUMP_MAX + at_ms - self.heard_ms:
            reason = "jumped"
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

    def __init__(self, weir: str, incarnation: int, *, is_signed: bool = False) -> None:
        """Begin without reports; `weir` and `incarnation` name this Weir, whose own reports are not
        charged. `is_signed`: True if all reports are signed with a key. Then each was sent by its Weir once,
        but may have been sent again by somebody else.
        """
        self._is_signed = is_signed
        self._own = (weir, incarnation)
        self._weirs: dict[str, dict[int, _Sender]] = {weir: {}}
        """Incarnations by the names of Weirs: of this one, too."""
        self._users: dict[int, dict[str, int]] = {}
        """Number of a limiter → other Weirs that use it, with the times (ms) of the last reports, the oldest
        first.
        """
        self._totals = 0
        """Number of kept totals, or more: forgotten incarnations are subtracted later."""
        self._charges: dict[int, list[OthersCharge]] = {}
        self._next_forget_ms = 0
        self.ignored: Counter[str] = Counter()
        """Number of reports and usages that were not charged, by reason."""
        self.sent = 0
        """Number of own reports that were sent. Set it before a report is sent, from any thread."""
        self.read_back = -1
        """Sequence of the newest own report that was read back; -1 before the first one."""
        self._returned: list[int] = []

    def take(self, report: UsageReport, now_ms: int, at_ms: int | None = None) -> None:
        """Count a report that was read at `now_ms`. Its units count as used at `at_ms`; None for now."""
        for _step in self.steps(report, now_ms, at_ms):
            pass

    def steps(self, report: UsageReport, now_ms: int, at_ms: int | None = None) -> Iterator[int]:
        """Count a report, as `take` does, in steps. Yield the number of usages after each step."""
        if self.is_own(report):
            self._take_own(report.sequence)
            return
        at_ms = now_ms if at_ms is None else at_ms
        sender = self._sender(report, at_ms)
        if sender is None:
            self.ignored["weirs"] += 1
        elif reason := sender.refusal(report.sequence, at_ms, is_signed=self._is_signed):
            self.ignored[reason] += 1
        else:
            if at_ms - sender.heard_ms >= SILENT_MS:
                sender.late_until_ms = at_ms + LATE_MS
            sender.heard_ms, sender.sequence = at_ms, report.sequence
            for first in range(0, len(report.usages), STEP):
                usages = report.usages[first : first + STEP]
                self._take(sender, report.weir, usages, now_ms, at_ms)
                yield len(usages)
        self._forget(now_ms)

    def is_own(self, report: UsageReport) -> bool:
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

    def _sender(self, report: UsageReport, at_ms: int) -> _Sender | None:
        """Return the incarnation that has sent a report; None if there are too many Weirs."""
        incarnations = self._weirs.get(report.weir)
        if incarnations is None:
            if len(self._weirs) >= WEIRS_MAX and not self._forget_silent(at_ms - HEARD_MS):
                return None
            incarnations = self._weirs[report.weir] = {}
        sender = incarnations.get(report.incarnation)
        if sender is None:
            if len(incarnations) >= INCARNATIONS_MAX:
                del incarnations[min(incarnations, key=lambda each: incarnations[each].heard_ms)]
            sender = incarnations[report.incarnation] = _Sender(report.sequence)
        return sender

    def _forget_silent(self, since_ms: int) -> bool:
        """Forget the Weir that was silent for longest; return False if each was heard after `since_ms`."""
        heard = {weir: _heard_ms(found) for weir, found in self._weirs.items() if weir != self._own[0]}
        longest = min(heard, key=heard.__getitem__)
        if heard[longest] > since_ms:
            return False
        del self._weirs[longest]
        return True

    def _take(
        self, sender: _Sender, weir: str, usages: Iterable[LimiterUsage], now_ms: int, at_ms: int
    ) -> None:
        for limiter, total, recent in usages:
            before, heard_ms = sender.totals.get(limiter, (-1.0, now_ms))
            known = before >= 0 and now_ms - heard_ms < (KEPT_MS if total >= before else REFUSED_MS)
            units = total - before if known else recent
            if units < 0:
                self.ignored["negative"] += 1
                continue
            if before < 0:
                if len(sender.totals) >= TOTALS_MAX or self._totals >= TOTALS_ALL_MAX:
                    self.ignored["limiters"] += 1
                    continue
                self._totals += 1
            sender.totals[limiter] = (total, now_ms)
            active = self._active(limiter, weir, now_ms)
            if units > 0:
                is_late = not known or at_ms < sender.late_until_ms
                self._charge(limiter, OthersCharge(at_ms, units, active, is_late))

    def _active(self, limiter: int, weir: str, now_ms: int) -> int:
        """Note that this Weir uses a limiter. Return the number of other Weirs that have reported usage of
        the limiter within `ACTIVE_MS`. A Weir that has restarted counts once, and a former process of this
        Weir does not count.
        """
        users = self._users.get(limiter)
        if users is None:
            users = self._users[limiter] = {}
        if weir != self._own[0]:
            users.pop(weir, None)  # the latest one is the last one
            users[weir] = now_ms
        while users and now_ms - users[oldest := next(iter(users))] >= ACTIVE_MS:
            del users[oldest]
        return len(users)

    def _charge(self, limiter: int, charge: OthersCharge) -> None:
        within_ms = MERGED_MS if len(self._charges) < CROWD else KEPT_MS
        add_charge(self._charges.setdefault(limiter, []), charge, within_ms)

    @property
    def has_charges(self) -> bool:
        """True if `charges` would return any."""
        return bool(self._charges)

    def charges(self) -> dict[int, list[OthersCharge]]:
        """Return what was reported since the last call: the charges of each limiter, the oldest first. Of
        more than `CHARGED_MAX` limiters, the next call returns the others.
        """
        some = list(islice(self._charges, CHARGED_MAX))
        return {number: self._charges.pop(number) for number in some}

    def returned(self) -> list[int]:
        """Return the sequences of the own reports that were read back since the last call."""
        returned, self._returned = self._returned, []
        return returned

    def weirs(self, now_ms: int) -> list[str]:
        """Return the names of the Weirs that were heard within `HEARD_MS`, this one first."""
        own, since_ms = self._own[0], now_ms - HEARD_MS
        heard = (weir for weir, found in self._weirs.items() if weir != own and _heard_ms(found) > since_ms)
        return [own, *heard]

    def _forget(self, now_ms: int) -> None:
        """Forget totals and incarnations about which no report came for `KEPT_MS`."""
        if now_ms < self._next_forget_ms:
            return
        self._next_forget_ms = now_ms + KEPT_MS // 6
        old_ms = now_ms - KEPT_MS
        self._totals = 0
        for weir, found in list(self._weirs.items()):
            for incarnation in [each for each, sender in found.items() if sender.heard_ms < old_ms]:
                del found[incarnation]
            if not found and weir != self._own[0]:
                del self._weirs[weir]
            for sender in found.values():
                for limiter in [each for each, (_, heard_ms) in sender.totals.items() if heard_ms < old_ms]:
                    del sender.totals[limiter]
                self._totals += len(sender.totals)
        for limiter in [
            each for each, users in self._users.items() if max(users.values(), default=-1) < old_ms
        ]:
            del self._users[limiter]


def _heard_ms(incarnations: Mapping[int, _Sender]) -> int:
    """Return the time (ms) of the last report of any incarnation."""
    return max((sender.heard_ms for sender in incarnations.values()), default=0)
