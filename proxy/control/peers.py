"""Peers: the clients of the open connections of an entity, in this process or in its workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from weir.proxy.connection.client import Client
from weir.proxy.control.budgets import client_quotas_by_key, side_of
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.names import shortened
from weir.proxy.control.snapshots.records import Where
from weir.proxy.control.supervisor import stepwise
from weir.proxy.control.throttled import SLICE
from weir.quotas import Budget, MutationBudget, QuotaKey, Tags
from weir.quotas.client_quotas import ClientQuotas
from weir.quotas.limiters.chain import Chain
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.table.quota_kind import KINDS

PEERS_MAX: Final = 5
"""Maximum number of addresses, libraries and client-ids that are kept of the connections of one entity."""
ANYWHERE: Final = "anywhere"


class EntityPeers(msgspec.Struct, frozen=True, array_like=True):
    """The budgets of one entity whose peers are wanted."""

    quota: QuotaKey
    tags: Tags
    where: Where | Literal["anywhere"] = ANYWHERE
    """Broker of the budget, or `cluster`; `ANYWHERE` for all budgets of this quota and these tags."""


class WantedPeers(msgspec.Struct, frozen=True, array_like=True):
    """The entities whose peers are wanted."""

    entities: list[EntityPeers]
    shadow: bool = False
    """True for shadow budgets instead of enforced ones."""


@dataclass(slots=True)
class Peers:
    """The clients of the open connections of one entity."""

    count: int = 0
    addresses: list[str] = field(default_factory=list)
    """IP addresses of some of these connections, each once, at most `PEERS_MAX`."""
    software: list[str] = field(default_factory=list)
    """Client libraries of some of these connections, likewise."""
    client_ids: list[str] = field(default_factory=list)
    """Client-ids of some of these connections, likewise."""

    def add(self, client: Client) -> None:
        """Count a connection of this client."""
        self.merge(Peers(1, [ip_of(client.peer)], [client.software], [shortened(client.quota_client_id)]))

    def merge(self, more: Peers) -> None:
        """Count more connections; an empty library or client-id is unknown."""
        self.count += more.count
        for values, known in (
            (more.addresses, self.addresses),
            (more.software, self.software),
            (more.client_ids, self.client_ids),
        ):
            for value in values:
                if value and len(known) < PEERS_MAX and value not in known:
                    known.append(value)


Connected: TypeAlias = Callable[[], Iterable[Client]]
"""Function that returns the clients of all open connections."""
ReadPeers: TypeAlias = Callable[[WantedPeers], Awaitable[list[Peers]]]
"""Coroutine function that returns the peers of each wanted entity, in the same order."""


def ip_of(peer: str) -> str:
    """Return the IP address of a peer IP:PORT.

    >>> ip_of("10.0.0.7:51234"), ip_of("[::1]:9")
    ('10.0.0.7', '::1')
    """
    return peer.rpartition(":")[0].strip("[]")


def local_peers(connected: Connected, registry: QuotaRegistry) -> ReadPeers:
    """Return a function that reads the peers of this process's connections."""

    async def read(wanted: WantedPeers) -> list[Peers]:
        return await stepwise(read_peers(connected, registry, wanted))

    return read


def read_peers(
    connected: Connected, registry: QuotaRegistry, wanted: WantedPeers
) -> Generator[None, None, list[Peers]]:
    """Return the peers of each wanted entity, in the same order. Yield between steps of about a millisecond.
    Budgets of topics and addresses have no connections.
    """
    found = [Peers() for _entity in wanted.entities]
    limiters = [(limiter, peers) for limiter, peers in zip(_limiters(registry, wanted), found, strict=True)]
    by_id = {id(limiter): peers for its, peers in limiters for limiter in its}
    with_mutations = any(KINDS[each.quota].is_of_controller for each in wanted.entities)
    mutations = side_of(registry.mutations, shadow=wanted.shadow) if with_mutations else None  # saves time
    for part in slices(list(connected()) if by_id else (), SLICE):
        for client in part:
            for limiter in charged_by(client, mutations, shadow=wanted.shadow):
                peers = by_id.get(id(limiter))
                if peers is not None:
                    peers.add(client)
        yield
    return found


def _limiters(registry: QuotaRegistry, wanted: WantedPeers) -> Iterator[list[Limiter]]:
    """Yield the limiters of each entity: one, or with `ANYWHERE` one for each broker that has served it."""
    if not wanted.entities:
        return
    quotas = client_quotas_by_key(registry, shadow=wanted.shadow)
    for each in wanted.entities:
        at_brokers = quotas.get(each.quota, {})
        chosen = [its for where, its in at_brokers.items() if each.where in (ANYWHERE, where)]
        yield [limiter for its in chosen if (limiter := its.with_tags(each.tags)) is not None]


def charged_by(
    client: Client, mutations: ClientQuotas[MutationBudget] | None, *, shadow: bool
) -> Iterator[Budget | MutationBudget]:
    """Yield each budget that the client's requests are charged to; without `mutations`, none of mutations."""
    ledger = client.ledger.shadow if shadow else client.ledger
    if ledger is not None:
        for limiter in ledger.limiters:
            if isinstance(limiter, Chain):
                yield from limiter.limiters
            elif limiter is not None:
                yield limiter
    if mutations is not None:
        budget = mutations.peek(client.user, client.quota_client_id)
        if budget is not None:
            yield budget
