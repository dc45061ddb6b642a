"""Read the budgets of clients for metrics: totals of all budgets, and details of the budgets that were
charged most.

Clients choose their client-ids, and so the number of budgets. Prometheus stores every label value that it has
ever seen, so only the `ENTITIES_MAX` largest budgets are shown; the totals include all budgets.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.quotas import BrokerQuotas, Budget, ClientQuotas, MutationBudget, QuotaKey, QuotaTable, Tags
from weir.quotas.cluster_quotas import ClusterQuotas
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.registry import Totals
from weir.quotas.topics import TopicRates

ENTITIES_MAX: Final = 1000
NAME_CHARS_MAX: Final = 200
"""Maximum number of characters of a user or client-id in a label value. Kafka allows client-ids of 32 KB."""
SLICE: Final = 1000
"""Number of budgets read in one step, which takes about a millisecond."""

A = TypeVar("A", bound=Limiter)

CLUSTER: Final = "cluster"
Where: TypeAlias = int | Literal["cluster"] | None
"""Node id of the broker at which a budget applies; None for a broker whose id is not known yet; `cluster` for
a budget of all brokers.
"""


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


class Entity(NamedTuple):
    """The values of one budget, as shown in metrics."""

    pot: tuple[str, str]
    """Label values of the budget's broker and quota."""
    sharers: tuple[str, ...]
    """Label values that tell the clients which share the budget: user, client_id, client_id_prefix. For a
    topic's budget, the topic.
    """
    charged: float
    rate: float
    """Current rate, in the unit of the quota: bytes/s, percent of a thread's time, or partitions/s."""
    limit: float
    throttled: int
    throttle_ms: int
    tokens: float = 0.0
    """Current balance (partitions) of a mutation budget; 0 for other budgets."""
    entry: str = ""
    """Entity of the quota entry that sets the budget's limit, as text; empty if the entry was removed."""
    refused: int = 0
    """Number of topics in requests that were refused because a mutation budget was exhausted; 0 for other
    budgets.
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """All label values of the budget: broker, quota and clients."""
        return *self.pot, *self.sharers


@dataclass(slots=True)
class Reading(Generic[A]):
    """The values of all budgets whose quotas have the same unit, read for one scrape."""

    totals: dict[Pot, Totals] = field(default_factory=dict)
    """Totals of the budgets by broker and quota. They include the budgets that are not in `shown`, and those
    that have expired.
    """
    counts: dict[Pot, int] = field(default_factory=dict)
    """Number of budgets that exist now, by broker and quota."""
    largest: list[tuple[Pot, A]] = field(default_factory=list)
    """The budgets that were charged most, each with its broker and quota."""
    shown: list[Entity] = field(default_factory=list)
    """Values of the budgets in `largest`, in the same order."""
    hidden: int = 0
    """Number of existing budgets that are not in `shown`."""


def byte_rates(registry: QuotaRegistry, shadow: bool) -> Pots[Budget]:
    """Yield the budgets of the produce quota and of the fetch quota (bytes) at each broker, each with its
    broker and quota. `shadow`: those of shadow entries.
    """
    return _pots(registry, lambda quotas: (quotas.produce, quotas.fetch), shadow=shadow)


def request_times(registry: QuotaRegistry, shadow: bool) -> Pots[RequestBudget]:
    """Yield the budgets of the request quota at each broker; `shadow`: those of shadow entries. The unit of
    their charges is one percent of a thread's time during a second.
    """
    return _pots(registry, lambda quotas: (quotas.request,), shadow=shadow)


def mutations(registry: QuotaRegistry, shadow: bool) -> Pots[MutationBudget]:
    """Yield the budgets of the mutation quota (partitions); `shadow`: those of shadow entries. The whole
    cluster has one set of them.
    """
    kind = registry.mutations.shadow if shadow else registry.mutations
    if kind is not None:
        yield Pot(CLUSTER, kind.key.value), kind


def read(
    quota_registry: QuotaRegistry,
    kinds: Kinds[A],
    now_ms: int,
    reading: Reading[A],
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
    remaining = iter(largest)
    while some := list(islice(remaining, SLICE // 4)):
        reading.shown += [
            _entity(pot, budget, now_ms)._replace(entry=_entry(table, pot.quota, budget.tags, shadow=shadow))
            for pot, budget in some
        ]
        yield


def topics(registry: QuotaRegistry, now_ms: int, *, shadow: bool) -> list[Entity]:
    """Return the values of the topics' budgets that were charged most. This needs no steps: topics have
    budgets only if the quota table has entries for them, so the budgets are few.
    """
    everywhere: list[tuple[Where, Iterable[TopicRates]]] = [
        (node_id, quotas.topics or ()) for node_id, quotas in registry.brokers.items()
    ]
    found = (
        (Pot(where, rates.key.value), budget)
        for where, both in [*everywhere, (CLUSTER, registry.cluster.topics)]
        for rates in both
        for budget in rates.budgets(shadow=shadow)
    )
    return [
        _entity(pot, budget, now_ms)._replace(sharers=(budget.tags.topic,))
        for pot, budget in heapq.nlargest(ENTITIES_MAX, found, key=_charged)
    ]


def _counted(kind: ClientQuotas[A], total: Totals) -> Iterator[list[A]]:
    """Add every budget of the quota to `total`. Yield the budgets in slices; a slice takes about a
    millisecond.
    """
    budgets = iter(list(kind))  # budgets may be added between two steps
    while part := list(islice(budgets, SLICE)):
        for budget in part:
            total.add(budget)
        yield part


def _pots(
    registry: QuotaRegistry,
    kinds: Callable[[BrokerQuotas | ClusterQuotas], tuple[ClientQuotas[A], ...]],
    *,
    shadow: bool,
) -> Pots[A]:
    """Yield the budgets of these quotas at every broker, then in the cluster. Leave out shadow quotas and
    quotas of the cluster without any charge or budget.
    """
    for node_id, quotas in registry.brokers.items():
        for kind in kinds(quotas):
            if not shadow:
                yield Pot(node_id, kind.key.value), kind
            elif kind.shadow is not None and _is_used(kind.shadow):
                yield Pot(node_id, kind.key.value), kind.shadow
    for kind in kinds(registry.cluster):
        side = kind.shadow if shadow else kind
        if side is not None and _is_used(side):
            yield Pot(CLUSTER, kind.key.value), side


def _is_used(quotas: ClientQuotas[A]) -> bool:
    return bool(len(quotas) or quotas.forgotten.charged)


def _charged(candidate: tuple[Pot, Limiter]) -> float:
    return candidate[1].charged


def _entity(pot: Pot, budget: Limiter, now_ms: int) -> Entity:
    found = Entity(
        pot.labels,
        sharers(budget.tags),
        charged=budget.charged,
        rate=budget.rate(now_ms),
        limit=budget.limit,
        throttled=budget.throttled,
        throttle_ms=budget.throttle_ms_total,
    )
    if isinstance(budget, MutationBudget):
        return found._replace(tokens=budget.tokens(now_ms), refused=budget.refused)
    return found


def _entry(table: QuotaTable, quota: str, tags: Tags, *, shadow: bool) -> str:
    key = QuotaKey(quota)
    entity = (table.shadow_limits(key) if shadow else table.limits(key)).entry_of(tags)
    return "" if entity is None else shortened(str(entity))


def sharers(tags: Tags) -> tuple[str, str, str]:
    """Return the user, client_id and client_id_prefix of a budget as label values, shortened."""
    return shortened(tags.user), shortened(tags.client_id), shortened(tags.client_id_prefix)


def broker_label(node_id: Where) -> str:
    """Return the label value of a broker: its node id, `cluster`, or `unknown` for a broker that was reached
    before its id was known.
    """
    return "unknown" if node_id is None else str(node_id)


def shortened(name: str) -> str:
    """Return a name as a label value: at most about `NAME_CHARS_MAX` characters, valid Unicode, and different
    for different names.
    """
    plain = name.encode("utf-8", "replace").decode("utf-8")
    if len(name) <= NAME_CHARS_MAX and plain == name:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{plain[:NAME_CHARS_MAX]}…{digest}"
