"""Log the throttles that shadow quotas would have caused: one line per entity and quota every ten seconds,
the longest throttles first.

Shadow quotas delay no request, so a client above a shadow quota exceeds it with every request. A line has the
number of throttles since the previous line, and their total time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import structlog

from proxy.control.quota_registry import QuotaRegistry
from quotas import Budget, MutationBudget, QuotaKey, Tags
from quotas.connections import ConnectionBudget, ConnectionQuotas
from quotas.limiters.budgets import UNLIMITED

log = structlog.get_logger("weir.shadow")

PERIOD_S: Final = 10.0
LINES_MAX: Final = 20
"""Maximum number of entities logged at a time; one more line has the number of the others."""
PERCENT_DIGITS: Final = 2
"""Number of decimal places of a rate of request time (percent) in a log line. Other rates are logged as whole
numbers.
"""
SLICE: Final = 1000
"""Number of budgets read in one step. A step takes less than a millisecond; sockets are served between steps.
"""

Counted: TypeAlias = Budget | MutationBudget | ConnectionBudget
Who: TypeAlias = tuple[QuotaKey, Tags]


@dataclass(slots=True)
class Held:
    """Number and total time of the throttles that one entity would have had by one quota, summed over all
    brokers.
    """

    throttled: int = 0
    throttle_ms: int = 0
    refused: int = 0
    limit: float = 0
    rate: float = 0
    """Current rate of the entity, at the broker with its highest rate; 0 for mutation quotas."""

    def add(self, budget: Counted, now_ms: int) -> None:
        """Add the throttles that one broker's budget has counted. Take over the budget's limit, and its
        current rate if that is higher.
        """
        self.throttled += budget.throttled
        self.throttle_ms += budget.throttle_ms_total
        self.limit = budget.limit
        if isinstance(budget, MutationBudget):
            self.refused += budget.refused
        else:
            self.rate = max(self.rate, budget.rate(now_ms))

    def since(self, before: Held | None) -> Held:
        """Return the throttles since `before`, an earlier reading of the same counts. Return all throttles if
        there was no earlier reading, or if the budget was removed and created again.
        """
        if before is None or before.throttled > self.throttled:
            return self
        return Held(
            self.throttled - before.throttled,
            max(self.throttle_ms - before.throttle_ms, 0),
            max(self.refused - before.refused, 0),
            self.limit,
            self.rate,
        )


class ShadowLog:
    """Logs the throttles that shadow quotas would have caused since the previous call of `look`."""

    def __init__(self, quota_registry: QuotaRegistry, connections: ConnectionQuotas) -> None:
        """Begin as if no throttle had been logged: the first call of `look` logs all."""
        self._quota_registry = quota_registry
        self._connections = connections
        self._said: dict[Who, Held] = {}

    def look(self, now_ms: int) -> Iterator[None]:
        """Log the throttles since the previous call, in steps of about a millisecond. The caller serves
        sockets at each yield.
        """
        found: dict[Who, Held] = {}
        for quotas in list(self._quota_registry.brokers.values()):
            for clients in (quotas.produce, quotas.fetch, quotas.request):
                yield from _look(clients.key, clients.shadow or (), found, now_ms)
            for topics in quotas.topics or ():
                yield from _look(topics.key, topics.budgets(shadow=True), found, now_ms)
        cluster = self._quota_registry.cluster
        for clients in (cluster.produce, cluster.fetch, cluster.request):
            yield from _look(clients.key, clients.shadow or (), found, now_ms)
        for topics in cluster.topics:
            yield from _look(topics.key, topics.budgets(shadow=True), found, now_ms)
        mutations = self._quota_registry.mutations
        yield from _look(mutations.key, mutations.shadow or (), found, now_ms)
        for addresses in self._connections.shadows():
            yield from _look(addresses.key, addresses, found, now_ms)
        new = {who: held.since(self._said.get(who)) for who, held in found.items()}
        self._said = found
        _say({who: held for who, held in new.items() if held.throttled})


def _look(key: QuotaKey, budgets: Iterable[Counted], found: dict[Who, Held], now_ms: int) -> Iterator[None]:
    """Add the throttles counted by these budgets, all of one quota, to `found`. Yield between steps."""
    remaining = iter(list(budgets))  # budgets may be added between two steps
    while part := list(islice(remaining, SLICE)):
        for budget in part:
            if budget.throttled:
                found.setdefault((key, budget.tags), Held()).add(budget, now_ms)
        yield


def _say(new: dict[Who, Held]) -> None:
    most = sorted(new.items(), key=lambda item: item[1].throttle_ms, reverse=True)
    for (key, tags), held in most[:LINES_MAX]:
        log.info("would have throttled", **_details(key, tags, held))
    rest = [held for _who, held in most[LINES_MAX:]]
    if rest:
        log.info(
            "would have throttled others",
            entities=len(rest),
            count=sum(held.throttled for held in rest),
            seconds=sum(held.throttle_ms for held in rest) / 1000,
        )


def _details(key: QuotaKey, tags: Tags, held: Held) -> dict[str, object]:
    """Return the fields of a log line: the quota, the names of the entity, counts and limit."""
    names = {name: value for name, value in tags._asdict().items() if value}
    details = {"quota": key.value, **names, "count": held.throttled, "seconds": held.throttle_ms / 1000}
    limit = None if held.limit == UNLIMITED else held.limit  # the entry has been removed
    if key is QuotaKey.CONTROLLER_MUTATION_RATE:
        return {**details, "refused": held.refused, "limit": limit}
    digits = PERCENT_DIGITS if key is QuotaKey.REQUEST_PERCENTAGE else None
    return {**details, "rate": round(held.rate, digits), "limit": limit}
