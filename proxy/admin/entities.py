"""Read the budgets of rates: totals, and details of those charged most.

Clients choose their client-ids, and so the number of budgets. Prometheus stores every label value that it has
ever seen, so only the `ENTITIES_MAX` largest budgets are shown; the totals include all.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from proxy.control.quota_registry import QuotaRegistry
from quotas import BrokerQuotas, Budget, ClientQuotas, Tags
from quotas.cluster_quotas import ClusterQuotas
from quotas.limiters.limiter import Limiter
from quotas.registry import Totals
from quotas.request_time import RequestBudget

ENTITIES_MAX: Final = 1000
NAME_CHARS_MAX: Final = 200
"""Kafka allows client-ids of 32 KB."""
SLICE: Final = 1000
"""Number of budgets read in one go: about a millisecond."""

A = TypeVar("A", bound=Limiter)
B = TypeVar("B", bound=Budget)

CLUSTER: Final = "cluster"
Where: TypeAlias = int | Literal["cluster"] | None
"""The broker at which a budget holds, None for one whose id is not known yet; or all of them."""
Kinds: TypeAlias = Callable[[BrokerQuotas | ClusterQuotas], tuple[ClientQuotas[B], ...]]
"""The quotas of one broker that are counted in one unit: only of these the largest can be told."""


class Pot(NamedTuple):
    """What totals are kept for: one kind of quota at one broker, or of the whole cluster."""

    node_id: Where
    quota: str


class Entity(NamedTuple):
    """The values of one budget."""

    labels: tuple[str, ...]
    """Broker, quota, and the clients that share the budget."""
    charged: float
    rate: float
    """Current rate in units per second."""
    limit: float
    throttled: int
    throttle_ms: int


@dataclass(slots=True)
class Reading(Generic[B]):
    """All budgets of one unit at one time."""

    totals: dict[Pot, Totals] = field(default_factory=dict)
    """Totals of all budgets, including hidden and expired ones."""
    counts: dict[Pot, int] = field(default_factory=dict)
    """Number of budgets kept."""
    largest: list[tuple[Pot, B]] = field(default_factory=list)
    """The budgets charged most."""
    shown: list[Entity] = field(default_factory=list)
    """The values of the budgets in `largest`, in the same order."""
    hidden: int = 0
    """Number of budgets not in `shown`."""


def byte_rates(quotas: BrokerQuotas | ClusterQuotas) -> tuple[ClientQuotas[Budget], ...]:
    """Those that are counted in bytes."""
    return quotas.produce, quotas.fetch


def request_times(quotas: BrokerQuotas | ClusterQuotas) -> tuple[ClientQuotas[RequestBudget], ...]:
    """Those that are counted in percent of a thread, each for a second."""
    return (quotas.request,)


def read(
    quota_registry: QuotaRegistry,
    kinds: Kinds[B],
    now_ms: int,
    reading: Reading[B],
    most: int = ENTITIES_MAX,
    *,
    shadow: bool = False,
) -> Iterator[None]:
    """Fill `reading`, in steps of about a millisecond; sockets are served at each yield. `shadow`: read the
    budgets of shadow entries.
    """
    largest = reading.largest
    for pot, kind in list(_pots(quota_registry, kinds, shadow=shadow)):
        total = reading.totals[pot] = copy(kind.forgotten)
        reading.counts[pot] = len(kind)
        for part in counted(kind, total):
            largest += [(pot, budget) for budget in part]
            if len(largest) > most:
                largest[:] = heapq.nlargest(most, largest, key=_charged)
            yield
    reading.hidden = sum(reading.counts.values()) - len(largest)
    remaining = iter(largest)
    while some := list(islice(remaining, SLICE // 4)):
        reading.shown += [_entity(pot, budget, now_ms) for pot, budget in some]
        yield


def counted(kind: ClientQuotas[A], total: Totals) -> Iterator[list[A]]:
    """Add every budget to `total`; yield them in slices of about a millisecond."""
    budgets = iter(list(kind))  # may change between two steps
    while part := list(islice(budgets, SLICE)):
        for budget in part:
            total.add(budget)
        yield part


def _pots(registry: QuotaRegistry, kinds: Kinds[B], *, shadow: bool) -> Iterator[tuple[Pot, ClientQuotas[B]]]:
    """Every kind of quota of this unit, at every broker; of the shadow's and the cluster's, those in use."""
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


def _charged(candidate: tuple[Pot, Budget]) -> float:
    return candidate[1].charged


def _entity(pot: Pot, budget: Budget, now_ms: int) -> Entity:
    return Entity(
        labels=(broker_label(pot.node_id), pot.quota, *sharers(budget.tags)),
        charged=budget.charged,
        rate=budget.rate(now_ms),
        limit=budget.limit,
        throttled=budget.throttled,
        throttle_ms=budget.throttle_ms_total,
    )


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
