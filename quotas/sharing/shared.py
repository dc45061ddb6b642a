"""SharedLimiters: the limiters of this Weir whose usage is shared with other Weirs.

A Weir may have 100,000 limiters, so only the used ones are looked at. A limiter that was not used for a while
is noted when it is charged again (`ClientQuotas.watch`).
"""
# mypyc: skip, because no request calls it, except the first one of a client.

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from weir.quotas.handover import AnyQuotas, QuotasName
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.limiter import UNLIMITED, Limiter
from weir.quotas.limiters.request_time import US_PER_PERCENT, RequestBudget
from weir.quotas.registry import SLICE
from weir.quotas.sharing.advances import Advances
from weir.quotas.sharing.blindness import Blindness, Sight
from weir.quotas.sharing.others import ACTIVE_MS, OthersCharge, add_charge
from weir.quotas.sharing.own import OwnUsage
from weir.quotas.sharing.repayment import RepaymentAccount
from weir.quotas.sharing.report import limiter_number
from weir.quotas.used import UsedLimiters, taken

if TYPE_CHECKING:
    from weir.quotas.table.entities import Tags

LOOK_MS: Final = 20
"""Time (ms) between two looks at used limiters."""
LOOK_STEPS: Final = 8
"""Number of slices (250 limiters each) that get another limit at one look."""
WAITING_MAX: Final = 10_000
"""Maximum number of limiters whose clients are not known here yet, and whose usage by others is kept."""
WAITING_MERGED_MS: Final = 999
"""Kept usage within this time (ms) is added up, and counts from the first charge on."""
SHARE_MS: Final = 10_000
"""Time (ms) in which former usage loses 63 % of its weight in a Weir's share."""
PURGE_MS: Final = 10_000
"""Minimum time (ms) between the beginnings of two purges. A purge goes through all limiters, `SLICE` at each
look, and forgets those that were removed.
"""
LEAD: Final = 10.0
"""Largest ratio of two Weirs' usages of a limiter that is taken for chance: one of them came first in the
last burst. Clients of a Weir that uses less do not compete for the limit: without this bound, a few bytes at
each of nine others throttled a client of 80 % of the limit to 43 %.
"""
SUDDEN_MS: Final = 250
"""Maximum time (ms) since the last usage. Usage is sudden as far as the limit does not allow it in that time:
clients of others are expected to begin at the same time.
"""


class _Usage:
    """Usage of one limiter, by own clients and by others'. Older usage counts less."""

    __slots__ = (
        "active",
        "active_ms",
        "advances",
        "at_ms",
        "believed",
        "believed_ms",
        "others",
        "others_total",
        "own",
        "own_ms",
        "own_total",
        "repayment",
    )

    def __init__(self, now_ms: int) -> None:
        self.at_ms = self.believed_ms = self.own_ms = now_ms
        self.believed = 0.0
        """Units of others that were charged and that the limit has not allowed again since."""
        self.advances = Advances()
        self.repayment = RepaymentAccount(now_ms)
        self.active = 0
        """Number of other Weirs whose clients used the limiter when a charge of others last came."""
        self.active_ms = now_ms
        """Time (ms) at which that charge came."""
        self.own = 0.0
        self.others = 0.0
        self.own_total = 0.0
        self.others_total = 0.0

    def note(self, own: float, others: float, now_ms: int) -> None:
        """Add units to both sides."""
        weight = math.exp(-max(now_ms - self.at_ms, 0) / SHARE_MS)
        self.own, self.others, self.at_ms = self.own * weight + own, self.others * weight + others, now_ms
        self.own_total += own
        self.others_total += others

    def believe(self, units: float, burst: float, per_ms: float, now_ms: int) -> float:
        """Return as many of `units` as others can have used: at most `burst` at once, and `per_ms` later."""
        self.believed = max(self.believed - per_ms * max(now_ms - self.believed_ms, 0), 0.0)
        self.believed_ms = now_ms
        units = min(units, max(burst - self.believed, 0.0))
        self.believed += units
        return units

    def expected(self, units: float, limit: float, burst: float, weirs: int, now_ms: int) -> float:
        """Return the units that clients of other Weirs are expected to use while own clients suddenly use
        `units`: at each other Weir whose clients use the limiter as many as here, but of all of them at most
        `LEAD` times as much as in proportion to the recent usage. With what they have reported, at most
        `burst`.

        Not just in proportion. The Weir that came first in the last burst would then expect little of the
        others, and the others would not expect less of it, so all together would use more. But without the
        bound, a few bytes at each of ten Weirs would throttle a client of one of them below the limit.
        """
        sudden = units - limit * min(now_ms - self.own_ms, SUDDEN_MS) / 1000
        if sudden <= 0 or now_ms - self.active_ms >= ACTIVE_MS:
            return 0.0
        expected = sudden * min(self.active, weirs - 1)
        if self.own > 0:
            expected = min(expected, sudden * LEAD * self.others / self.own)
        self.believe(0.0, burst, limit / 1000, now_ms)
        return max(min(expected, burst - self.believed - self.advances.units), 0.0)

    @property
    def share(self) -> float | None:
        """Own share of the recent usage; None without usage."""
        used = self.own + self.others
        return min(max(self.own / used, 0.0), 1.0) if used > 0 else None


class SharedQuotas:
    """Limiters of the quotas of clients, or of the rates of topics; implements `client_quotas.Sharing`."""

    def __init__(self, shared: SharedLimiters, name: QuotasName, quotas: AnyQuotas, window_s: float) -> None:
        """Share the limiters of `quotas`, whose windows (or bursts) are `window_s` long."""
        self.name: Final = name
        self.quotas: Final = quotas
        self.window_s: Final = window_s
        self.memory_ms: Final = int(1000 * window_s) + shared.sample_ms
        """Time (ms) for which a charge counts: a window and a sample."""
        self.numbers: Final[dict[Tags, int]] = {}
        """Numbers of the limiters that were seen."""
        self.noted: Final[list[Tags]] = quotas.watch() if shared.collects else []
        """Limiters that may have been charged, or are not seen yet."""
        self._shared = shared

    def part(self, tags: Tags) -> float:
        """Return the part of the limit that this Weir uses now."""
        return self._shared.part(self.number(tags))

    def created(self, limiter: Limiter, now_ms: int) -> None:
        """Note a new limiter, and charge it with what others have used under its limit."""
        self._shared.found(self, limiter, now_ms)

    def restored(self, tags: Tags) -> None:
        """Note a new limiter that gets its usage from another process next. It is charged with what others
        have used at the next look, because charges must follow each other in time.
        """
        self.noted.append(tags)

    def number(self, tags: Tags) -> int:
        """Return the number of the limiter with these tags."""
        number = self.numbers.get(tags)
        return limiter_number(self.name, tags) if number is None else number


class SharedLimiters:
    """Collects own usage for reports, and charges the usage of others."""

    def __init__(
        self, own: OwnUsage | None, blindness: Blindness, memory_ms: int, sample_ms: int = 1000
    ) -> None:
        """Begin without limiters. `own`: None if another process collects own usage; `note_own` tells it.
        `memory_ms`: time (ms) for which a charge counts; `sample_ms`: length (ms) of a sample.
        """
        self.collects: Final = own is not None
        """True if own usage is collected here."""
        self.sample_ms: Final = sample_ms
        self._own = own
        self._blindness = blindness
        self._memory_ms = memory_ms
        self._joined: dict[QuotasName, SharedQuotas] = {}
        self._limiters: dict[int, tuple[SharedQuotas, Tags]] = {}
        self._in_use = UsedLimiters[int](sample_ms)
        """Numbers of used limiters."""
        self._usage: dict[int, _Usage] = {}
        self._waiting: dict[int, list[OthersCharge]] = {}
        self._round: Iterator[tuple[SharedQuotas, Sequence[Limiter]]] = iter(())
        self._purged_ms = 0
        self._is_purge_due = False
        self._purged_generation = 0
        self._purging: Iterator[tuple[int, tuple[SharedQuotas, Tags]]] = iter(())
        self._apply_rounds = 0
        """Number of rounds through all limiters that shall still give limiters their part of the limit; 0
        for no present round.
        """
        self.others_units = 0.0
        """Sum of the units that other Weirs have reported, for metrics."""
        self.dropped = 0
        """Number of reported usages that were not charged, because too many clients are unknown here."""

    def join(self, name: QuotasName, quotas: AnyQuotas, window_s: float) -> None:
        """Share the limiters of these quotas from now on; do nothing if they are shared already."""
        if name not in self._joined:
            quotas.sharing = self._joined[name] = SharedQuotas(self, name, quotas, window_s)
            self._apply_rounds = 2

    def usages(self, user: str, client_id: str) -> Iterator[tuple[QuotasName, Tags, float, float]]:
        """Yield (name of the quotas, tags, units of own clients, units of clients of others) of the used
        limiters that apply to a client. Units of request time are µs.
        """
        for name, joined in self._joined.items():
            limiter = joined.quotas.peek(user, client_id)
            found = None if limiter is None else self._usage.get(joined.number(limiter.tags))
            if limiter is not None and found is not None:
                yield name, limiter.tags, found.own_total, found.others_total

    def part(self, number: int) -> float:
        """Return the part of its limit that the limiter of this number uses now."""
        if self._blindness.sight in (Sight.CLEAR, Sight.NEVER):
            return 1.0
        usage = self._usage.get(number)
        return self._blindness.part(None if usage is None else usage.share)

    def look(self, now_ms: int) -> None:
        """Count the usage of own clients since the last look. Call this every `LOOK_MS`."""
        if self._blindness.look(now_ms):
            self._apply_rounds = 2
        for joined in self._joined.values():
            if joined.noted:
                self._look_at_noted(joined, now_ms)
        for number in self._in_use.next_ones():
            self._look_at_used(number, now_ms)
        if self._apply_rounds:
            self._apply_parts(now_ms)
        if now_ms - self._purged_ms >= PURGE_MS:
            self._purged_ms = now_ms
            self._forget_waiting(now_ms)
            self._is_purge_due = True
        self._purge()

    def _look_at_noted(self, joined: SharedQuotas, now_ms: int) -> None:
        for tags in taken(joined.noted):
            number = joined.numbers.get(tags)
            if number is not None and number not in self._waiting:
                self._in_use.note(number, now_ms)
            elif (limiter := joined.quotas.known(tags)) is not None:
                self.found(joined, limiter, now_ms)

    def _apply_parts(self, now_ms: int) -> None:
        """Give the next limiters of the present round the part of their limit that this Weir uses."""
        for _ in range(LOOK_STEPS):
            found = next(self._round, None)
            if found is None:
                self._apply_rounds -= 1
                self._round = self._all()
                return
            joined, limiters = found
            for limiter in limiters:
                if limiter.tags not in joined.numbers:
                    self.found(joined, limiter, now_ms)
                joined.quotas.apply_part(limiter.tags)

    def _all(self) -> Iterator[tuple[SharedQuotas, Sequence[Limiter]]]:
        for quotas in list(self._joined.values()):
            for limiters in quotas.quotas.slices():
                yield quotas, limiters

    def _look_at_used(self, number: int, now_ms: int) -> None:
        known = self._limiters.get(number)
        limiter = None if known is None else known[0].quotas.known(known[1])
        if known is None or limiter is None:
            self._in_use.forget(number)
            return
        self._collect(known[0], limiter, number, now_ms)
        self._in_use.cool(number, now_ms)

    def found(self, quotas: SharedQuotas, limiter: Limiter, now_ms: int) -> int:
        """Note a limiter that was not seen before, and charge it with what others have used under its limit.
        Return its number.
        """
        number = quotas.numbers[limiter.tags] = limiter_number(quotas.name, limiter.tags)
        self._limiters[number] = quotas, limiter.tags
        self._in_use.note(number, now_ms)
        for charge in self._waiting.pop(number, ()):
            if now_ms - charge.at_ms < quotas.memory_ms:
                self._charge(quotas, limiter, number, charge, now_ms)
        return number

    def _collect(self, quotas: SharedQuotas, limiter: Limiter, number: int, now_ms: int) -> None:
        units = 0.0 if self._own is None else limiter.delta()
        if limiter.limit == UNLIMITED:
            return
        if self._own is not None and units:
            window_units = limiter.limit * quotas.window_s
            weirs = self._blindness.weirs
            scale = _scale(limiter)
            self._own.note(number, units * scale, window_units * scale, weirs, now_ms)
        self._used(quotas, limiter, number, units, now_ms)

    def note_own(self, name: QuotasName, tags: Tags, units: float, now_ms: int) -> None:
        """Count units that own clients have used, as another process has collected them. They decide this
        Weir's share of the usage, its advances and its repayments.
        """
        quotas = self._joined.get(name)
        limiter = None if quotas is None else quotas.quotas.known(tags)
        if quotas is not None and limiter is not None and limiter.limit != UNLIMITED:
            self._used(quotas, limiter, quotas.number(tags), units, now_ms)

    def _used(self, quotas: SharedQuotas, limiter: Limiter, number: int, units: float, now_ms: int) -> None:
        """Count units of own clients, and charge the advances and repayments that follow."""
        usage = self._usage_of(number, now_ms) if units else self._usage.get(number)
        if usage is None:
            return
        if isinstance(limiter, Budget):
            self._advance(quotas, limiter, usage, units, number, now_ms)
            if units:
                self._repay(quotas, number, limiter, units, now_ms)
        if units:
            self._in_use.note(number, now_ms)
            usage.note(units * _scale(limiter), 0.0, now_ms)
            usage.own_ms = now_ms

    def _advance(
        self, quotas: SharedQuotas, budget: Budget, usage: _Usage, units: float, number: int, now_ms: int
    ) -> None:
        """Charge what clients of others are expected to use while own clients suddenly use these units, and
        give back what was expected before and not reported.
        """
        change = -usage.advances.expire(now_ms)
        if self._blindness.sight is Sight.CLEAR:
            burst = budget.limit * quotas.window_s
            expected = usage.expected(units, budget.limit, burst, self._blindness.weirs, now_ms)
            usage.advances.add(expected, now_ms)
            change += expected
        if change:
            budget.absorb(change, max(now_ms, budget.charged_ms))
            self._in_use.note(number, now_ms)

    def _repay(self, quotas: SharedQuotas, number: int, budget: Budget, units: float, now_ms: int) -> None:
        """Note units that own clients or others have used, and charge again what the window has forgotten.
        All clients together use the whole limit, also while this Weir uses a part.
        """
        limit = budget.limit / self.part(number)
        due = self._usage[number].repayment.note(
            units, limit, limit * quotas.window_s, quotas.memory_ms, now_ms
        )
        if due and budget.forgets_excess:
            budget.absorb(due, max(now_ms, budget.charged_ms))

    def absorb(self, charges: Mapping[int, list[OthersCharge]], now_ms: int) -> None:
        """Charge usage of clients of other Weirs. Usage of limiters that do not exist here is kept for
        as long as it counts.
        """
        for number, some in charges.items():
            known = self._limiters.get(number)
            limiter = None if known is None else known[0].quotas.known(known[1])
            if known is None or limiter is None:
                self._keep(number, some)
                continue
            for charge in some:
                self.others_units += charge.units
                self._charge(known[0], limiter, number, charge, now_ms)

    def _keep(self, number: int, charges: list[OthersCharge]) -> None:
        if number not in self._waiting and len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            return
        kept = self._waiting.setdefault(number, [])
        for charge in charges:
            self.others_units += charge.units
            add_charge(kept, charge, WAITING_MERGED_MS)
        oldest_ms = kept[-1].at_ms - self._memory_ms
        self._waiting[number] = [each for each in kept if each.at_ms > oldest_ms]

    def _charge(
        self, quotas: SharedQuotas, limiter: Limiter, number: int, charge: OthersCharge, now_ms: int
    ) -> None:
        """Record units in the limiter, at most a window's worth of all other Weirs at once, and later what
        the limit allows. Clients would use more only while reports are late. But invented Weirs must not
        make a client wait for many windows.
        """
        if limiter.limit == UNLIMITED or now_ms - charge.at_ms >= quotas.memory_ms:
            return
        scale = _scale(limiter)
        usage = self._usage_of(number, min(charge.at_ms, now_ms))
        limit = limiter.limit / self.part(number)
        units = usage.believe(charge.units / scale, limit * quotas.window_s, limit / 1000, now_ms)
        at_ms = charge.at_ms
        if limiter.charged or usage.others_total:  # samples of a limiter follow each other in time
            at_ms = max(at_ms, limiter.charged_ms)
        at_ms = min(at_ms, now_ms)
        limiter.absorb(usage.advances.settle(units), at_ms)
        if isinstance(limiter, Budget) and not charge.is_late:
            self._repay(quotas, number, limiter, units, at_ms)
        usage.note(0.0, charge.units, now_ms)
        usage.active, usage.active_ms = charge.weirs, now_ms

    def _usage_of(self, number: int, now_ms: int) -> _Usage:
        usage = self._usage.get(number)
        if usage is None:
            usage = self._usage[number] = _Usage(now_ms)
        return usage

    def _forget_waiting(self, now_ms: int) -> None:
        """Forget usage of others that no longer counts."""
        oldest_ms = now_ms - self._memory_ms
        for number in [each for each, kept in self._waiting.items() if kept[-1].at_ms <= oldest_ms]:
            del self._waiting[number]

    def _purge(self) -> None:
        """Forget removed limiters among the next `SLICE` ones of the present purge. At its end, begin another
        purge if that is due and any limiter was removed.
        """
        some = list(islice(self._purging, SLICE))
        for number, (joined, tags) in some:
            if joined.quotas.known(tags) is None:
                self._limiters.pop(number, None)
                joined.numbers.pop(tags, None)
                self._usage.pop(number, None)
                self._in_use.forget(number)
        if some or not self._is_purge_due:
            return
        self._is_purge_due = False
        generation = sum(joined.quotas.generation for joined in self._joined.values())
        if generation != self._purged_generation:
            self._purged_generation = generation
            self._purging = iter(list(self._limiters.items()))


def _scale(limiter: Limiter) -> float:
    """Return the reported units for one unit of the limiter: µs for a percent of a second, else 1."""
    return US_PER_PERCENT if isinstance(limiter, RequestBudget) else 1.0
