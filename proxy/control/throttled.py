"""Read the counters of throttles that budgets keep: how often each entity was throttled, at all brokers.

Requests pay nothing for this: budgets count their throttles anyway, and a periodic task reads the counters in
slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from weir.proxy.connection.client import Client
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.quotas import BrokerQuotas, Budget, MutationBudget, QuotaKey, Tags
from weir.quotas.client_quotas import ClientQuotas
from weir.quotas.cluster_quotas import ClusterQuotas
from weir.quotas.connections import ConnectionBudget, ConnectionQuotas
from weir.quotas.limiters.limiter import Limiter

SLICE: Final = 1000
"""Number of budgets, or of connections, read in one step. A step takes less than a millisecond; sockets are
served between steps.
"""
ADDRESSES_MAX: Final = 5
"""Maximum number of addresses that are kept of the connections of one entity."""

A = TypeVar("A", bound=Limiter)

Counted: TypeAlias = Budget | MutationBudget | ConnectionBudget
Who: TypeAlias = tuple[QuotaKey, Tags]
"""Quota and tags of a budget; brokers are not distinguished."""
Connected: TypeAlias = Callable[[], Iterable[Client]]
"""Function that returns the clients of all open connections."""


@dataclass(slots=True)
class Throttled:
    """Number and total time of the throttles of one entity by one quota, summed over all brokers."""

    count: int = 0
    throttle_ms: int = 0
    refused: int = 0
    """Number of topics that mutation budgets have refused."""
    limit: float = 0
    rate: float = 0
    """Current rate of the entity, at the broker with its highest rate; 0 for mutation quotas."""
    until_ms: int = 0
    """Time (ms) at which the latest throttle ends; 0 for connection quotas."""

    def add(self, budget: Counted, now_ms: int) -> None:
        """Add the throttles that one broker's budget has counted. Take over the budget's limit, and its
        current rate if that is higher.
        """
        self.count += budget.throttled
        self.throttle_ms += budget.throttle_ms_total
        self.limit = budget.limit
        if isinstance(budget, MutationBudget):
            self.refused += budget.refused
        else:
            self.rate = max(self.rate, budget.rate(now_ms))
        if not isinstance(budget, ConnectionBudget):
            self.until_ms = max(self.until_ms, budget.throttled_until_ms)

    def since(self, before: Throttled | None) -> Throttled:
        """Return the throttles since `before`, an earlier reading of the same counts. Return all throttles if
        there was no earlier reading, or if the budget was removed and created again.
        """
        if before is None or before.count > self.count:
            return self
        return Throttled(
            self.count - before.count,
            max(self.throttle_ms - before.throttle_ms, 0),
            max(self.refused - before.refused, 0),
            self.limit,
            self.rate,
            self.until_ms,
        )

    def plus(self, other: Throttled) -> Throttled:
        """Return the sum of the counts of both; limit, rate and end are those of `other`, the later one."""
        return Throttled(
            self.count + other.count,
            self.throttle_ms + other.throttle_ms,
            self.refused + other.refused,
            other.limit,
            other.rate,
            other.until_ms,
        )


def read_throttles(
    registry: QuotaRegistry,
    connections: ConnectionQuotas,
    found: dict[Who, Throttled],
    now_ms: int,
    *,
    shadow: bool,
) -> Iterator[None]:
    """Fill `found` with the throttles that all enforced budgets (with `shadow`: all shadow budgets) have
    counted since they were created. Yield between steps of about a millisecond.
    """
    for key, budgets in list(_budgets(registry, connections, shadow=shadow)):
        remaining = iter(list(budgets))  # budgets may be added between two steps
        while part := list(islice(remaining, SLICE)):
            for budget in part:
                if budget.throttled:
                    found.setdefault((key, budget.tags), Throttled()).add(budget, now_ms)
            yield


def _budgets(
    registry: QuotaRegistry, connections: ConnectionQuotas, *, shadow: bool
) -> Iterator[tuple[QuotaKey, Iterable[Counted]]]:
    """Yield (quota, its budgets) for each broker, for the cluster, and for the addresses of connections."""
    everywhere: list[BrokerQuotas | ClusterQuotas] = [*registry.brokers.values(), registry.cluster]
    for quotas in everywhere:
        yield quotas.produce.key, _side(quotas.produce, shadow=shadow)
        yield quotas.fetch.key, _side(quotas.fetch, shadow=shadow)
        yield quotas.request.key, _side(quotas.request, shadow=shadow)
        for topics in quotas.topics or ():
            yield topics.key, topics.budgets(shadow=shadow)
    yield registry.mutations.key, _side(registry.mutations, shadow=shadow)
    for addresses in connections.of_addresses(shadow=shadow):
        yield addresses.key, addresses


def _side(quotas: ClientQuotas[A], *, shadow: bool) -> Iterable[A]:
    if not shadow:
        return quotas
    return () if quotas.shadow is None else quotas.shadow


@dataclass(slots=True)
class Connections:
    """The open connections of one entity."""

    count: int = 0
    addresses: list[str] = field(default_factory=list)
    """IP addresses of some of these connections, each once, at most `ADDRESSES_MAX`."""

    def add(self, peer: str) -> None:
        """Count a connection from this address (IP:PORT)."""
        self.count += 1
        ip = peer.rpartition(":")[0]
        if len(self.addresses) < ADDRESSES_MAX and ip not in self.addresses:
            self.addresses.append(ip)


def read_connections(
    connected: Connected, registry: QuotaRegistry, found: Mapping[Who, Connections], *, shadow: bool
) -> Iterator[None]:
    """Count the connections of each entity in `found`, in steps of about a millisecond. Connections belong to
    a client's budgets; budgets of topics and addresses have none.
    """
    mutations = registry.mutations.shadow if shadow else registry.mutations
    if not any(key is QuotaKey.CONTROLLER_MUTATION_RATE for key, _tags in found):
        mutations = None
    remaining = iter(list(connected()) if found else ())
    while part := list(islice(remaining, SLICE)):
        for client in part:
            for who in _drawn_on(client, mutations, shadow=shadow):
                if who in found:
                    found[who].add(client.peer)
        yield


def _drawn_on(
    client: Client, mutations: ClientQuotas[MutationBudget] | None, *, shadow: bool
) -> Iterator[Who]:
    """Yield the quota and tags of each budget that the client's connection is charged to."""
    ledger = client.ledger.shadow if shadow else client.ledger
    if ledger is not None:
        if ledger.produce is not None:
            yield QuotaKey.PRODUCER_BYTE_RATE, ledger.produce.tags
        if ledger.fetch is not None:
            yield QuotaKey.CONSUMER_BYTE_RATE, ledger.fetch.tags
        if ledger.request is not None:
            yield QuotaKey.REQUEST_PERCENTAGE, ledger.request.tags
    if mutations is not None:
        budget = mutations.peek(client.user, client.quota_client_id)
        if budget is not None:
            yield QuotaKey.CONTROLLER_MUTATION_RATE, budget.tags
