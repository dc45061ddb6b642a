"""Throttled entities: how often each was throttled, and the clients of its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from weir.proxy.connection.client import Client
from weir.proxy.control.budgets import Counted, side_of
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.slices import slices
from weir.quotas import MutationBudget, QuotaKey, Tags
from weir.quotas.client_quotas import ClientQuotas
from weir.quotas.limiters.limiter import Limiter

SLICE: Final = 1000
"""Number of budgets, or of connections, read in one step. A step takes less than a millisecond; sockets are
served between steps.
"""
PEERS_MAX: Final = 5
"""Maximum number of addresses, and of client libraries, that are kept of the connections of one entity."""
QUIET_MS: Final = 30_000
"""Time (ms) without a throttle after which the throttling of an entity has ended. It is longer than the
window of a rate, so that a client that stays at its quota is throttled once, for long.
"""

K = TypeVar("K")

Who: TypeAlias = tuple[QuotaKey, Tags]
"""Quota of a budget, and the names of the clients that share the budget (`Tags`). All brokers' budgets of one
quota and name have the same `Who`.
"""
Connected: TypeAlias = Callable[[], Iterable[Client]]
"""Function that returns the clients of all open connections."""


@dataclass(slots=True)
class Throttled:
    """Number and total time of throttles of one entity by one quota, summed over all brokers."""

    count: int = 0
    throttle_ms: int = 0
    refused: int = 0
    """Number of topics that mutation budgets have refused."""
    until_ms: int = 0
    """Time (ms) at which the latest throttle ends."""
    budgets: list[Counted] = field(default_factory=list)
    """Budgets that have counted these throttles, at most one per broker."""

    def note(self, budget: Counted) -> None:
        """Note that this budget has counted some of the throttles."""
        self.until_ms = max(self.until_ms, budget.throttled_until_ms)
        if budget not in self.budgets:
            self.budgets.append(budget)

    def add(self, other: Throttled) -> None:
        """Add later throttles of the same entity by the same quota."""
        self.count += other.count
        self.throttle_ms += other.throttle_ms
        self.refused += other.refused
        for budget in other.budgets:
            self.note(budget)

    @property
    def limit(self) -> float:
        """The present limit of the budget that was throttled for the first time last."""
        return self.budgets[-1].limit

    def rate(self, now_ms: int) -> float:
        """Return the current rate of the entity, at the broker with its highest rate."""
        return max(budget.rate(now_ms) for budget in self.budgets)


@dataclass(slots=True)
class Peers:
    """The clients of the open connections of one entity."""

    count: int = 0
    addresses: list[str] = field(default_factory=list)
    """IP addresses of some of these connections, each once, at most `PEERS_MAX`."""
    software: list[str] = field(default_factory=list)
    """Client libraries of some of these connections, likewise."""

    def add(self, client: Client) -> None:
        """Count a connection of this client."""
        self.count += 1
        for value, known in ((ip_of(client.peer), self.addresses), (client.software, self.software)):
            if value and len(known) < PEERS_MAX and value not in known:
                known.append(value)


def ip_of(peer: str) -> str:
    """Return the IP address of a peer IP:PORT.

    >>> ip_of("10.0.0.7:51234"), ip_of("[::1]:9")
    ('10.0.0.7', '::1')
    """
    return peer.rpartition(":")[0].strip("[]")


def read_peers(
    connected: Connected,
    registry: QuotaRegistry,
    found: Mapping[K, Peers],
    name: Callable[[QuotaKey, Limiter], K],
    *,
    shadow: bool,
    with_mutations: bool,
) -> Iterator[None]:
    """Add the client of each open connection to the peers in `found` of the budgets that it is charged to, in
    steps of about a millisecond. `name` returns the key in `found` of a quota's budget. Budgets of topics and
    addresses have no connections; mutation budgets have none without `with_mutations`, which saves time.
    """
    mutations = side_of(registry.mutations, shadow=shadow) if with_mutations else None
    for part in slices(list(connected()) if found else (), SLICE):
        for client in part:
            for key, limiter in charged_by(client, mutations, shadow=shadow):
                peers = found.get(name(key, limiter))
                if peers is not None:
                    peers.add(client)
        yield


def charged_by(
    client: Client, mutations: ClientQuotas[MutationBudget] | None, *, shadow: bool
) -> Iterator[tuple[QuotaKey, Limiter]]:
    """Yield the quota and the budget of each budget that the client's requests are charged to."""
    ledger = client.ledger.shadow if shadow else client.ledger
    if ledger is not None:
        if ledger.produce is not None:
            yield QuotaKey.PRODUCER_BYTE_RATE, ledger.produce
        if ledger.fetch is not None:
            yield QuotaKey.CONSUMER_BYTE_RATE, ledger.fetch
        if ledger.request is not None:
            yield QuotaKey.REQUEST_PERCENTAGE, ledger.request
    if mutations is not None:
        budget = mutations.peek(client.user, client.quota_client_id)
        if budget is not None:
            yield QuotaKey.CONTROLLER_MUTATION_RATE, budget
