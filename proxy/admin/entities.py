"""Read the budgets of rates: totals, and details of those charged most.

Clients choose their client-ids, and so the number of budgets. Prometheus stores every label value that it has
ever seen, so only the `ENTITIES_MAX` largest budgets are shown; the totals include all.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from proxy.control.quota_registry import QuotaRegistry
from quotas import BrokerQuotas, Budget, ClientQuotas, MutationBudget, Tags
from quotas.cluster_quotas import ClusterQuotas
from quotas.limiters.limiter import Limiter
from quotas.limiters.request_time import RequestBudget
from quotas.registry import Totals
from quotas.topics import TopicRates

ENTITIES_MAX: Final = 1000
NAME_CHARS_MAX: Final = 200
"""Kafka allows client-ids of 32 KB."""
SLICE: Final = 1000
"""Number of budgets read in one go: about a millisecond."""

A = TypeVar("A", bound=Limiter)

CLUSTER: Final = "cluster"
Where: TypeAlias = int | Literal["cluster"] | None
"""The broker at which a budget holds, None for one whose id is not known yet; or all of them."""


class Pot(NamedTuple):
    """One kind of quota at one broker, or of the whole cluster: its budgets are totalled."""

    node_id: Where
    quota: str

    @property
    def labels(self) -> tuple[str, str]:
        """Return broker and quota, as label values."""
        return broker_label(self.node_id), self.quota


Pots: TypeAlias = Iterator[tuple[Pot, ClientQuotas[A]]]
Kinds: TypeAlias = Callable[[QuotaRegistry, bool], Pots[A]]
"""(quotas, True for shadow entries) -> quotas counted in one unit: only their budgets can be compared."""


class Entity(NamedTuple):
    """The values of one budget."""

    pot: tuple[str, str]
    """Broker and quota."""
    sharers: tuple[str, ...]
    """The clients that share the budget: user, client_id, client_id_prefix; of a topic's budget the topic."""
    charged: float
    rate: float
    """Current rate in units per second."""
    limit: float
    throttled: int
    throttle_ms: int
    tokens: float = 0.0
    """Of mutations: current balance in partitions."""
    refused: int = 0
    """Of mutations: number of topics refused."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Return all label values."""
        return *self.pot, *self.sharers


@dataclass(slots=True)
class Reading(Generic[A]):
    """All budgets of one unit at one time."""

    totals: dict[Pot, Totals] = field(default_factory=dict)
    """Totals of all budgets, including hidden and expired ones."""
    counts: dict[Pot, int] = field(default_factory=dict)
    """Number of budgets kept."""
    largest: list[tuple[Pot, A]] = field(default_factory=list)
    """The budgets charged most."""
    shown: list[Entity] = field(default_factory=list)
    """The values of the budgets in `largest`, in the same order."""
    hidden: int = 0
    """Number of budgets not in `shown`."""


def byte_rates(registry: QuotaRegistry, shadow: bool) -> Pots[Budget]:
    """Yield the quotas counted in bytes."""
    return _pots(registry, lambda quotas: (quotas.produce, quotas.fetch), shadow=shadow)


def request_times(registry: QuotaRegistry, shadow: bool) -> Pots[RequestBudget]:
    """Yield the quotas counted in percent of a thread, each for a second."""
    return _pots(registry, lambda quotas: (quotas.request,), shadow=shadow)


def mutations(registry: QuotaRegistry, shadow: bool) -> Pots[MutationBudget]:
    """Yield the quota counted in partitions, which belongs to no broker."""
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
    """Fill `reading`, in steps of about a millisecond; sockets are served at each yield. `shadow`: read the
    budgets of shadow entries.
    """
    largest = reading.largest
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
        reading.shown += [_entity(pot, budget, now_ms) for pot, budget in some]
        yield


def topics(registry: QuotaRegistry, now_ms: int, *, shadow: bool) -> list[Entity]:
    """Return the topics charged most; there are no more budgets of topics than entries in the table."""
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
    """Add every budget to `total`; yield them in slices of about a millisecond."""
    budgets = iter(list(kind))  # may change between two steps
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
    """Yield quotas of these kinds at every broker; shadow quotas, and those of the cluster, only if used."""
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


def sharers(tags: Tags) -> tuple[str, str, str]:
    """Return user, client_id, client_id_prefix: the label values of a budget."""
    return shortened(tags.user), shortened(tags.client_id), shortened(tags.client_id_prefix)


def broker_label(node_id: Where) -> str:
    """Name a broker, or `cluster`; the id of one that was reached before it was known is `unknown`."""
    return "unknown" if node_id is None else str(node_id)


def shortened(name: str) -> str:
    """Return a name as a label value: short, encodable, and unique."""
    plain = name.encode("utf-8", "replace").decode("utf-8")
    if len(name) <= NAME_CHARS_MAX and plain == name:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{plain[:NAME_CHARS_MAX]}…{digest}"
