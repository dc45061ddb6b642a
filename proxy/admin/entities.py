"""Reading the budgets of rates: totals, and the figures of those that were charged the most.

Clients choose their client-ids, so the number of budgets is theirs to choose as well. Prometheus keeps every
label value that it has ever seen: only the `ENTITIES_MAX` largest are shown one by one. All of them count in
the totals.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from proxy.control.quota_registry import QuotaRegistry
from quotas import BrokerQuotas, Budget, ClientQuotas, Tags
from quotas.budgets import Account, Totals
from quotas.request_time import RequestBudget

ENTITIES_MAX: Final = 1000
NAME_CHARS_MAX: Final = 200
"""Kafka allows client-ids of 32 KB."""
SLICE: Final = 1000
"""Budgets to look at in one go: about a millisecond."""

A = TypeVar("A", bound=Account)
B = TypeVar("B", bound=Budget)

Kinds: TypeAlias = Callable[[BrokerQuotas], tuple[ClientQuotas[B], ...]]
"""The quotas of one broker that are counted in one unit: only of these the largest can be told."""


class Pot(NamedTuple):
    """What totals are kept for: one kind of quota at one broker."""

    node_id: int | None
    quota: str


class Entity(NamedTuple):
    """The figures of one budget."""

    labels: tuple[str, ...]
    """broker, quota, and who shares it."""
    charged: float
    rate: float
    """Units per second, now."""
    limit: float
    throttled: int
    throttle_ms: int


@dataclass(slots=True)
class Reading(Generic[B]):
    """All budgets of one unit at one time, as far as they are shown."""

    totals: dict[Pot, Totals] = field(default_factory=dict)
    """Of all budgets, shown or not, and of those that have expired."""
    counts: dict[Pot, int] = field(default_factory=dict)
    """How many budgets are remembered."""
    largest: list[tuple[Pot, B]] = field(default_factory=list)
    """Those that were charged most."""
    shown: list[Entity] = field(default_factory=list)
    """Their figures."""
    hidden: int = 0
    """How many are not among `shown`."""


def byte_rates(quotas: BrokerQuotas) -> tuple[ClientQuotas[Budget], ...]:
    """Those that are counted in bytes."""
    return quotas.produce, quotas.fetch


def request_times(quotas: BrokerQuotas) -> tuple[ClientQuotas[RequestBudget], ...]:
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
    """Fill `reading`, in steps of a millisecond or so: each yield is a place to let others work.

    `shadow`: of the budgets of shadow entries.
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
    """Add every budget to `total`; yield them in parts that take a millisecond or so."""
    budgets = iter(list(kind))  # it may change between two steps
    while part := list(islice(budgets, SLICE)):
        for budget in part:
            total.add(budget)
        yield part


def _pots(
    quota_registry: QuotaRegistry, kinds: Kinds[B], *, shadow: bool
) -> Iterator[tuple[Pot, ClientQuotas[B]]]:
    """Every kind of quota of this unit, at every broker; of the shadow's, those in use."""
    for node_id, quotas in quota_registry.brokers.items():
        for kind in kinds(quotas):
            if not shadow:
                yield Pot(node_id, kind.key.value), kind
            elif kind.shadow is not None and (len(kind.shadow) or kind.shadow.forgotten.charged):
                yield Pot(node_id, kind.key.value), kind.shadow


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
    """user, client_id, client_id_prefix: who shares a budget, as label values."""
    return shortened(tags.user), shortened(tags.client_id), shortened(tags.client_id_prefix)


def broker_label(node_id: int | None) -> str:
    """Name a broker; the id of one that was reached before it was known is `unknown`."""
    return "unknown" if node_id is None else str(node_id)


def shortened(name: str) -> str:
    """Return the name as a label value: short, encodable, and no two names the same."""
    plain = name.encode("utf-8", "replace").decode("utf-8")
    if len(name) <= NAME_CHARS_MAX and plain == name:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{plain[:NAME_CHARS_MAX]}…{digest}"
