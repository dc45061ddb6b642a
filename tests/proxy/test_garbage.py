"""Closed connections leave nothing to the garbage collector, whose full runs would stop the reactor."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.proxy.rigs import Rig, tcp_pair
from tests.proxy.wire import new_connection
from tests.wire.frames import request
from tests.wire.messages import fetch, fetched, produce
from weir.protocol.messages import CreateTopicsRequest, FindCoordinatorRequest, HeartbeatRequest
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable

MADE_BY = ("weir.proxy.connection", "weir.proxy.net", "weir.proxy.handlers")


QUOTAS: Final = QuotaTable(
    {
        (Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE): 1e12,
        (Entity(client_id=DEFAULT), QuotaKey.CONSUMER_BYTE_RATE): 1e12,
        (Entity(client_id=DEFAULT), QuotaKey.REQUEST_PERCENTAGE): 1e12,
        (Entity(client_id=DEFAULT), QuotaKey.CONTROLLER_MUTATION_RATE): 1e12,
        (Entity(topic="t"), QuotaKey.PRODUCER_BYTE_RATE): 1e12,
    }
)
"""Every charge is made, nobody waits."""


def ours() -> list[str]:
    found = (type(each) for each in gc.get_objects())
    return sorted(
        f"{kind.__module__}.{kind.__qualname__}" for kind in found if str(kind.__module__).startswith(MADE_BY)
    )


OF_A_PROCESS: Final = {
    "weir.proxy.connection.effects.Clock",
    "weir.proxy.net.buffered.BufferedBytes",
    "weir.proxy.net.latency.Histogram",
    "weir.proxy.net.latency.Latencies",
    "weir.proxy.net.reactor.Reactor",
    "weir.proxy.net.reactor.Turns",
    "weir.proxy.net.splicing.Splicer",
}
"""A process has one of each (of histograms, four), for ever; here each rig has."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python frees what has no reference left, and nothing else. `gc.get_objects` lists the test's own
    objects.
    """
    gc.collect()
    gc.disable()
    gc.freeze()
    yield
    gc.enable()


def converse(rig: Rig) -> None:
    asked = produce() + fetch(2) + request(HeartbeatRequest(), 4, 3)
    rig.pass_on(asked, rig.client, rig.broker)
    rig.pass_on(fetched(2)[:3], rig.broker, rig.client)


def leave_a_request_incomplete(rig: Rig) -> None:
    rig.send(rig.client, request(FindCoordinatorRequest(coordinator_keys=["g"] * 100), 6)[:50])
    rig.turn(3)


def leave_a_query(rig: Rig) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    rig.send(rig.client, request(CreateTopicsRequest(topics=[topic]), 5))
    rig.turn(3)
    assert rig.take(rig.broker)


def end_by_the_client(rig: Rig) -> None:
    rig.client.close()
    rig.end()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("tls", [(), ("client",), ("client", "broker")], ids=["plain", "tls", "tls twice"])
@pytest.mark.parametrize("use", [converse, leave_a_request_incomplete, leave_a_query, end_by_the_client])
def test_a_closed_connection_leaves_no_reference_cycle(
    tls: tuple[str, ...], use: Callable[[Rig], None]
) -> None:
    plans, registries = Plans(Counters()), UsageRegistries()

    def once() -> None:
        connection = new_connection(QUOTAS, plans=plans)
        connection.client.usage = registries.of(1)
        rig = Rig(connection=connection, pair=tcp_pair, tls=tls)
        use(rig)
        rig.close()
        vars(rig).clear()  # the rig is what the relay tells its end

    once()  # makes plans and codecs
    before = ours()
    once()
    left = ours()
    kinds = {*left} - OF_A_PROCESS
    assert {kind: left.count(kind) - before.count(kind) for kind in kinds} == dict.fromkeys(kinds, 0)
