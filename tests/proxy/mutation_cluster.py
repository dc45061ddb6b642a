"""A connection with a mutation quota, in front of a model of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.kfake.cluster import everything
from tests.kfake.controller import NODE, OK, Controller
from tests.kfake.direct import Client
from tests.mutations.requests import Answer, Create, Mutation, Topic
from tests.proxy.wire import new_connection
from weir.protocol.messages import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, Message
from weir.protocol.versions import VersionRange
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.client_quotas import mutation_rates

RATE: Final = 1.0
BURST: Final = 10
"""Tokens of a bucket that is full: rate x samples x window."""


def limited(rate: float | None = RATE, client_id: str = "app") -> QuotaTable:
    entity = Entity(client_id=client_id)
    return QuotaTable({} if rate is None else {(entity, QuotaKey.CONTROLLER_MUTATION_RATE): rate})


def quotas_of(table: QuotaTable, samples: int = BURST) -> BrokerQuotas:
    """The quotas of a cluster of one broker, windows of one second."""
    mutations = mutation_rates(samples, 1)
    return BrokerQuotas.create(table, mutations=mutations)


class Cluster:
    """A controller, Weir in front of it, and clients; each request on a connection of its own."""

    def __init__(
        self,
        spoken: dict[int, VersionRange] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        table: QuotaTable | None = None,
        samples: int = BURST,
        uplift: bool = False,
        controller: Controller | None = None,
    ) -> None:
        self.controller = controller or Controller(spoken=everything() if spoken is None else spoken)
        for name, partitions in (sizes or {}).items():
            self.controller.add(name, partitions)
        self.quotas = quotas_of(limited() if table is None else table, samples)
        self.plans = Plans(Counters(), uplift=uplift, cluster=ClusterState())

    def connect(self, node_id: int | None = NODE) -> Client:
        return Client(new_connection(quotas=self.quotas, plans=self.plans, node_id=node_id), self.controller)

    def ask(self, now_ms: int, mutation: Mutation, client_id: str = "app") -> Answer:
        (frame,) = self.connect().send(now_ms, mutation.frame(client_id))
        return mutation.answer(frame)

    def codes(self, now_ms: int, mutation: Mutation) -> dict[str, int]:
        return {result.name or "": result.error_code for result in self.ask(now_ms, mutation).results}

    @property
    def tokens(self) -> float:
        budget = self.quotas.mutations.budget("ANONYMOUS", "app", 0)
        assert budget is not None
        return budget.tokens(self.controller.now_ms)

    def overdraw(self, now_ms: int = 0, by: int = 5) -> None:
        """Take all tokens of a full bucket and some more."""
        assert self.codes(now_ms, Create((Topic("overdrawn", BURST + by),))) == {"overdrawn": OK}
        assert self.tokens == -by
        self.controller.received.clear()

    def mutations(self) -> list[Message]:
        return self.controller.messages_of(CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest)
