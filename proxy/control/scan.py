"""One walk per second over all budgets, for their readers: the log of throttles, levels of usage, histories.

Clients choose the number of budgets, so the walk is short for budgets of clients that do nothing, and it is
done in steps. A step compares a few numbers of each budget with those of the scan before. Names are compared
only for budgets that were throttled since then. Rates take longest: one scan computes the rates of every
fifth budget, so a *round* of `ROUND` scans has the rates of all.

Each reader asks for a scan that it has not used (`look`). The first one to ask begins the scan, and all that
wait for the scan advance it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import nlargest
from operator import attrgetter
from typing import Final, NamedTuple

from weir.proxy.control.budgets import Counted, all_budgets, usage_of
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.records import Where
from weir.proxy.control.throttled import QUIET_MS, Throttled, Who
from weir.quotas import MutationBudget, QuotaKey, Tags

ROUND: Final = 5
"""Number of scans that compute the rates of all budgets."""
FORGET: Final = 60
"""Number of scans after which the counters of removed budgets are dropped."""
LISTED_MAX: Final = 1000
"""Maximum number of budgets in `Scan.throttled`. `Scan.most_used` has at least this number, if they exist."""
KEPT_MS: Final = 600_000
"""Time (ms) after its last charge for which a budget is among the most used."""
HIGH: Final = 0.4
"""Share of its limit from which a budget is in `Scan.take_high`."""
SLICE: Final = 250
"""Number of budgets processed in one step, which takes less than a millisecond."""


class BudgetUsage(NamedTuple):
    """A budget, and its usage in one scan."""

    quota: QuotaKey
    where: Where
    shadow: bool
    budget: Counted
    rate: float
    usage: float
    """Rate divided by the limit."""


class _Seen(NamedTuple):
    """A budget and its counters, as the scan before has read them."""

    budget: Counted | None = None
    throttled: int = 0
    throttle_ms: int = 0
    refused: int = 0


_NOTHING: Final = _Seen()


class _Group(NamedTuple):
    """The budgets of one quota at one broker."""

    quota: QuotaKey
    where: Where
    shadow: bool


class Scan:
    """Reads the budgets of all quotas, enforced and shadow ones."""

    def __init__(self, registry: QuotaRegistry) -> None:
        self.registry: Final = registry
        self.number = 0
        """Number of complete scans."""
        self.throttled: list[BudgetUsage] = []
        """Budgets that are throttled, or were within `QUIET_MS`, in the latest scan; at most `LISTED_MAX`.
        Their usage counts as infinite, and their rates are not read.
        """
        self._rates = _Rates()
        self._latest = _Rates()
        """The rates of the latest complete round."""
        self._new: list[dict[Who, Throttled]] = [{}, {}]
        """Throttles that no reader has taken, of enforced and of shadow budgets."""
        self._seen: dict[_Group, dict[Tags, _Seen]] = {}
        """Counters of budgets that have throttles, by tags: a change of the pacing replaces the budget of an
        entity, but not its counters. Removed budgets are dropped every `FORGET` scans.
        """
        self._since_ms: float = -math.inf
        """Time (ms) at which the latest complete scan began."""
        self._steps: Iterator[None] | None = None

    @property
    def rounds(self) -> int:
        """Number of complete rounds."""
        return self.number // ROUND

    def look(self, after: int, now_ms: int) -> Iterator[None]:
        """Scan until the number of complete scans is above `after`. Yield between steps of less than a
        millisecond.
        """
        while self.number <= after:
            if self._steps is None:
                self._steps = self._scan(now_ms)
            try:
                next(self._steps)
            except StopIteration:  # complete, or another reader's step has failed
                self._steps = None
            yield

    def look_around(self, after: int, now_ms: int) -> Iterator[None]:
        """Scan until the number of complete rounds is above `after`; likewise."""
        while self.rounds <= after:
            yield from self.look(self.number, now_ms)

    def take(self, *, shadow: bool) -> dict[Who, Throttled]:
        """Return the throttles that were found since the previous call, of enforced or of shadow budgets."""
        taken, self._new[shadow] = self._new[shadow], {}
        return taken

    def take_high(self, *, shadow: bool) -> list[BudgetUsage]:
        """Return the budgets that use `HIGH` of their limits or more, in the latest round; once per round."""
        taken, self._latest.high[shadow] = self._latest.high[shadow], []
        return taken

    @property
    def most_used(self) -> list[BudgetUsage]:
        """The budgets with the highest usage in the latest round, enforced and shadow ones, in any order."""
        return self._latest.most

    def _scan(self, now_ms: int) -> Iterator[None]:
        phase, throttled = self.number % ROUND, list[BudgetUsage]()
        forgets = self.number % FORGET == FORGET - 1
        kept: dict[_Group, dict[Tags, _Seen]] = {}
        memory_ms = self.registry.memory_ms
        for group, budgets in list(self._groups()):
            seen = self._seen.setdefault(group, {})
            for part in slices(list(budgets), SLICE):  # budgets may be added between two steps
                self._note_throttles(group, part, now_ms, throttled)
                if forgets:
                    known = {budget.tags: seen[budget.tags] for budget in part if budget.tags in seen}
                    kept.setdefault(group, {}).update(known)
                self._rates.note(group, part[phase::ROUND], now_ms, memory_ms)
                yield
        self.throttled, self._since_ms = throttled, now_ms
        self._seen = kept if forgets else self._seen
        self.number += 1
        if not self.number % ROUND:
            self._latest, self._rates = self._rates, _Rates()

    def _groups(self) -> Iterator[tuple[_Group, Iterable[Counted]]]:
        for shadow in (False, True):
            for where, quota, budgets in all_budgets(self.registry, shadow=shadow):
                yield _Group(quota, where, shadow), budgets

    def _note_throttles(
        self, group: _Group, part: list[Counted], now_ms: int, throttled: list[BudgetUsage]
    ) -> None:
        """Add the new throttles of these budgets to `_new`, and throttled budgets to `throttled`."""
        since_ms, quiet_ms, seen = self._since_ms, now_ms - QUIET_MS, self._seen[group]
        for budget in part:
            is_recent = budget.throttled_until_ms > quiet_ms
            # A charge, or a throttle, changes one of both times.
            if (is_recent or budget.charged_ms >= since_ms) and (count := budget.throttled):
                if is_recent and len(throttled) < LISTED_MAX:
                    throttled.append(BudgetUsage(*group, budget, math.nan, math.inf))
                before = seen.get(budget.tags, _NOTHING)
                if before.throttled != count or before.budget is not budget:
                    self._note_new(group, budget, before)

    def _note_new(self, group: _Group, budget: Counted, before: _Seen) -> None:
        refused = budget.refused if isinstance(budget, MutationBudget) else 0
        after = _Seen(budget, budget.throttled, budget.throttle_ms_total, refused)
        self._seen[group][budget.tags] = after
        if before.budget is not budget and not _succeeds(after, before):
            before = _NOTHING
        if after.throttled == before.throttled:
            return
        new = self._new[group.shadow].setdefault((group.quota, budget.tags), Throttled())
        new.count += after.throttled - before.throttled
        new.throttle_ms += max(after.throttle_ms - before.throttle_ms, 0)
        new.refused += after.refused - before.refused
        new.note(budget)


def _succeeds(after: _Seen, before: _Seen) -> bool:
    """Return True if the budget has replaced the former one with its counters, because another pacing has
    another class. Otherwise the former one was removed, and the budget began without counters.
    """
    return type(after.budget) is not type(before.budget) and after.throttled >= before.throttled


class _Rates:
    """The rates of one round."""

    def __init__(self) -> None:
        self.high: list[list[BudgetUsage]] = [[], []]
        """Enforced, and shadow budgets with a usage of `HIGH` or more."""
        self.most: list[BudgetUsage] = []
        """Budgets with the highest usage."""
        self._least = -1.0
        """Usage that a budget must exceed to be among the most used."""

    def note(self, group: _Group, part: list[Counted], now_ms: int, memory_ms: int) -> None:
        """Note the usage of these budgets, without those that were not charged for `KEPT_MS`. `memory_ms`:
        time after the last charge and throttle after which a rate is 0.
        """
        high, kept_ms, used_ms = self.high[group.shadow], now_ms - KEPT_MS, now_ms - memory_ms
        for budget in part:
            charged_ms = budget.charged_ms
            if charged_ms <= kept_ms:
                continue
            rate = usage = 0.0
            if charged_ms > used_ms or budget.throttled_until_ms > used_ms:
                rate = budget.rate(now_ms)
                usage = usage_of(rate, budget.limit)
            is_high, is_most = usage >= HIGH, usage > self._least
            if is_high or is_most:
                used = BudgetUsage(*group, budget, rate, usage)
                if is_high:
                    high.append(used)
                if is_most:
                    self.most.append(used)
        if len(self.most) > 2 * LISTED_MAX:
            self.most = nlargest(LISTED_MAX, self.most, key=attrgetter("usage"))
            self._least = self.most[-1].usage
