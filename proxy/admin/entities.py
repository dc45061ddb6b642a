"""Read the budgets of clients for metrics: totals of all budgets, and the values of the budgets that were
charged most.

Clients choose their client-ids, and so the number of budgets. Prometheus stores every label value that it has
ever seen, so only the `ENTITIES_MAX` largest budgets are shown; the totals include all budgets. The choice is
by all that was charged, because this sum only grows: the chosen budgets, and so the series, stay. The API
instead lists the entities that are first in the order that the operator asks for
(`weir.proxy.control.snapshots.entities`). The values of a budget have one reader for both
(`weir.proxy.control.snapshots.values`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from weir.proxy.control.budgets import CLUSTER, brokers_and_cluster, client_quotas, side_of
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.records import Where
from weir.proxy.control.snapshots.values import Values, read_values
from weir.quotas import BrokerQuotas, Budget, ClientQuotas, MutationBudget, QuotaKey, QuotaTable, Tags
from weir.quotas.cluster_quotas import ClusterQuotas
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.registry import LimiterTotals
from weir.quotas.table.quota_kind import KINDS

ENTITIES_MAX: Final = 1000
SLICE: Final = 1000
"""Number of budgets read in one step, which takes about a millisecond."""

A = TypeVar("A", bound=Limiter)


class Pot(NamedTuple):
    """Broker and quota whose budgets are totalled together. The broker is `cluster` for budgets of all
    brokers.
    """

    node_id: Where
    quota: str

    @property
    def labels(self) -> tuple[str, str]:
        """The label values of the broker and the quota."""
        return broker_label(self.node_id), self.quota


Pots: TypeAlias = Iterator[tuple[Pot, ClientQuotas[A]]]
Kinds: TypeAlias = Callable[[QuotaRegistry, bool], Pots[A]]
"""Function (registry, True for shadow entries) that yields, by broker, the budgets of all quotas that have
the same unit, such as bytes. Only budgets in the same unit can be compared.
"""


@dataclass(slots=True)
class BudgetReadings(Generic[A]):
    """The values of all budgets whose quotas have the same unit, read for one scrape."""

    totals: dict[Pot, LimiterTotals] = field(default_factory=dict)
    """Totals of the budgets by broker and quota. They include the budgets that are not in `shown`, and those
    that have expired.
    """
    counts: dict[Pot, int] = field(default_factory=dict)
    """Number of budgets that exist now, by broker and quota."""
    largest: list[tuple[Pot, A]] = field(default_factory=list)
    """The budgets that were charged most, each with its broker and quota."""
    shown: list[Values] = field(default_factory=list)
    """Values of the budgets in `largest`, in the same order."""
    hidden: int = 0
    """Number of existing budgets that are not in `shown`."""


def byte_rates(registry: QuotaRegistry, shadow: bool) -> Pots[Budget]:
    """Yield the budgets of each kind of byte rate at each broker, each with its broker and quota. `shadow`:
    those of shadow entries.
    """
    return _pots(registry, _byte_rates, shadow=shadow)


def _byte_rates(quotas: BrokerQuotas | ClusterQuotas) -> tuple[ClientQuotas[Budget], ...]:
    return tuple(each for each in quotas.limits if KINDS[each.key].unit == "bytes/s")


def request_times(registry: QuotaRegistry, shadow: bool) -> Pots[RequestBudget]:
    """Yield the budgets of the request quota at each broker; `shadow`: those of shadow entries. The unit of
    their charges is one percent of a thread's time during a second.
    """
    return _pots(registry, lambda quotas: (quotas.request,), shadow=shadow)


def mutations(registry: QuotaRegistry, shadow: bool) -> Pots[MutationBudget]:
    """Yield the budgets of the mutation quota (partitions); `shadow`: those of shadow entries. The whole
    cluster has one set of them.
    """
    kind = side_of(registry.mutations, shadow=shadow)
    if kind is not None:
        yield Pot(CLUSTER, kind.key.value), kind


def read(
    quota_registry: QuotaRegistry,
    kinds: Kinds[A],
    now_ms: int,
    reading: BudgetReadings[A],
    most: int = ENTITIES_MAX,
    *,
    shadow: bool = False,
) -> Iterator[None]:
    """Fill `reading` with the values of all budgets that `kinds` yields, in steps of about a millisecond; the
    caller serves sockets at each yield. With `shadow`, read the budgets of shadow entries.
    """
    largest, table = reading.largest, quota_registry.in_force
    for pot, kind in list(kinds(quota_registry, shadow)):
        total = reading.totals[pot] = copy(kind.forgotten)
        reading.counts[pot] = len(kind)
        for part in _counted(kind, total):
            largest += [(pot, budget) for budget in part]
            if len(largest) > most:
                largest[:] = heapq.nlargest(most, largest, key=_charged)
            yield
    reading.hidden = sum(reading.counts.values()) - len(largest)
    for some in slices(largest, SLICE // 4):
        reading.shown += [_values(table, pot, budget, now_ms, shadow=shadow) for pot, budget in some]
        yield


def topics(registry: QuotaRegistry, now_ms: int, *, shadow: bool) -> list[Values]:
    """Return the values of the topics' budgets that were charged most. This needs no steps: topics have
    budgets only if the quota table has entries for them, so the budgets are few.
    """
    found = (
        (Pot(where, rates.key.value), budget)
        for where, quotas in brokers_and_cluster(registry)
        for rates in quotas.topics or ()
        for budget in rates.budgets(shadow=shadow)
    )
    largest = heapq.nlargest(ENTITIES_MAX, found, key=_charged)
    return [_values(registry.in_force, pot, budget, now_ms, shadow=shadow) for pot, budget in largest]


def _values(table: QuotaTable, pot: Pot, budget: Limiter, now_ms: int, *, shadow: bool) -> Values:
    return read_values(table, pot.node_id, QuotaKey(pot.quota), budget, now_ms, shadow=shadow)


def _counted(kind: ClientQuotas[A], total: LimiterTotals) -> Iterator[list[A]]:
    """Add every budget of the quota to `total`. Yield the budgets in slices; a slice takes about a
    millisecond.
    """
    for part in slices(list(kind), SLICE):  # budgets may be added between two steps
        for budget in part:
            total.add(budget)
        yield part


def _pots(
    registry: QuotaRegistry,
    kinds: Callable[[BrokerQuotas | ClusterQuotas], tuple[ClientQuotas[A], ...]],
    *,
    shadow: bool,
) -> Pots[A]:
    """Yield the quotas at every broker, then in the cluster. Leave out shadow quotas, and quotas of the
    cluster, without any charge or budget.
    """
    for where, quotas in client_quotas(registry, kinds, shadow=shadow):
        if _is_used(quotas) or (where != CLUSTER and not shadow):
            yield Pot(where, quotas.key.value), quotas


def _is_used(quotas: ClientQuotas[A]) -> bool:
    return bool(len(quotas) or quotas.forgotten.charged)


def _charged(candidate: tuple[Pot, Limiter]) -> float:
    return candidate[1].charged


def sharers(names: Tags) -> tuple[str, str, str, str]:
    """Return the user, client_id, client_id_prefix and group among the names of a budget, as label values."""
    return names.user, names.client_id, names.client_id_prefix, names.group


def labels(values: Values) -> tuple[str, ...]:
    """Return the label values of a budget: broker, quota and clients."""
    return broker_label(values.broker), values.quota.value, *sharers(values.names)


def broker_label(node_id: Where) -> str:
    """Return the label value of a broker: its node id, `cluster`, or `unknown` for a broker that was reached
    before its id was known.
    """
    return "unknown" if node_id is None else str(node_id)
