"""Read the mutation budgets, which belong to no broker; otherwise like `entities`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from proxy.admin.entities import ENTITIES_MAX, SLICE, counted, sharers
from proxy.control.quota_registry import QuotaRegistry
from quotas import MutationBudget
from quotas.registry import Totals


class MutationEntity(NamedTuple):
    """The values of one budget."""

    labels: tuple[str, ...]
    """The clients that share the budget."""
    charged: float
    """Number of partitions charged."""
    tokens: float
    """Current balance in partitions."""
    limit: float
    """Partitions per second."""
    throttled: int
    throttle_ms: int
    refused: int
    """Number of topics refused."""


@dataclass(slots=True)
class MutationReading:
    """All mutation budgets at one time."""

    totals: Totals = field(default_factory=Totals)
    """Totals of all budgets, including hidden and expired ones."""
    count: int = 0
    """Number of budgets kept."""
    shown: list[MutationEntity] = field(default_factory=list)
    hidden: int = 0
    """Number of budgets not shown."""


def read_mutations(
    quota_registry: QuotaRegistry,
    now_ms: int,
    reading: MutationReading,
    most: int = ENTITIES_MAX,
    *,
    shadow: bool = False,
) -> Iterator[None]:
    """Fill `reading`, in steps of about a millisecond; sockets are served at each yield. `shadow`: read the
    budgets of shadow entries.
    """
    kind = quota_registry.mutations.shadow if shadow else quota_registry.mutations
    if kind is None:
        return
    reading.totals = copy(kind.forgotten)
    reading.count = len(kind)
    largest: list[MutationBudget] = []
    for part in counted(kind, reading.totals):
        candidates = [*largest, *part]
        largest = (
            candidates
            if len(candidates) <= most
            else heapq.nlargest(most, candidates, key=attrgetter("charged"))
        )
        yield
    reading.hidden = reading.count - len(largest)
    remaining = iter(largest)
    while some := list(islice(remaining, SLICE // 4)):
        reading.shown += [_entity(budget, now_ms) for budget in some]
        yield


def _entity(budget: MutationBudget, now_ms: int) -> MutationEntity:
    return MutationEntity(
        labels=sharers(budget.tags),
        charged=budget.charged,
        tokens=budget.tokens(now_ms),
        limit=budget.limit,
        throttled=budget.throttled,
        throttle_ms=budget.throttle_ms_total,
        refused=budget.refused,
    )
