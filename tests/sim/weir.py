"""Weir as the simulation drives it: the only module here that knows how its parts are put together."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

from tests.kfake.cluster import everything
from tests.proxy.wire import new_connection
from tests.quotas.changes import put_in_force
from tests.sim.net import FakeSocket, Net
from tests.sim.script import HOT, Script, SetQuota
from tests.wire.messages import id_of
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.plans import Plans
from weir.proxy.net.reactor import Reactor
from weir.proxy.net.relay import Relay
from weir.proxy.net.tls_relay import new_relay
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable

PLANS: Final = Plans(Counters())
"""Shared by all runs, because to make them takes longer than a run; only their cluster is a new one."""


class Weir:
    def __init__(self, script: Script, clock_us: Callable[[], int], net: Net) -> None:
        self.reactor = Reactor(clock_us, net)
        self.plans = PLANS
        PLANS.cluster = PLANS.for_broker(everything()).cluster = ClusterState()
        self._script = script
        self._limits = {quota.client_id: quota for quota in script.quotas}
        self.quotas = BrokerQuotas.create(self._table())

    def connect(
        self, client: FakeSocket, broker: FakeSocket, on_end: Callable[[CloseReason, str], None]
    ) -> Relay:
        connection = new_connection(quotas=self.quotas, plans=self.plans)
        connection.clock = self.reactor.clock
        return new_relay(self.reactor, client, broker, connection, lambda _relay, *why: on_end(*why))

    def set_quota(self, quota: SetQuota) -> None:
        self._limits[quota.client_id] = quota
        put_in_force(self.quotas, self._table())

    def charged(self) -> dict[tuple[str, str], float]:
        """Return what was charged: ("produce" or "fetch", client-id) -> bytes."""
        kinds = (("produce", self.quotas.produce), ("fetch", self.quotas.fetch))
        return {(api, budget.tags.client_id): budget.charged for api, budgets in kinds for budget in budgets}

    def knows(self, wire_name: str) -> bool:
        """Return True if Weir knows which topic has the id of this name (`script.wire_name`)."""
        return self.plans.cluster.names_by_id.name(id_of(wire_name).bytes) is not None

    def next_timer_ms(self, now_ms: int) -> int | None:
        timeout_s = self.reactor.timeout_s()
        return None if timeout_s is None else now_ms + round(1000 * timeout_s)

    def left(self) -> int:
        """Return how many objects of connections exist that were made since the collector last ran."""
        return sum(isinstance(thing, Relay | Connection) for thing in gc.get_objects(0))

    def _table(self) -> QuotaTable:
        produce, fetch, script = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, self._script
        values: dict[tuple[Entity, QuotaKey], float] = {}
        for client_id, quota in self._limits.items():
            entity = Entity(client_id=client_id)
            values |= {(entity, produce): quota.produce, (entity, fetch): quota.fetch}
            if script.request_percentage:
                values[entity, QuotaKey.REQUEST_PERCENTAGE] = script.request_percentage
        if script.topic_rate:
            topic = Entity(topic=HOT)
            values |= {(topic, produce): script.topic_rate, (topic, fetch): script.topic_rate}
        return QuotaTable(values)
