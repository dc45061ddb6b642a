"""What counting usage keeps is bounded, whatever clients invent, and given back when they leave."""

from __future__ import annotations

from tests.proxy.usage_totals import Taken, recorded, total
from tests.proxy.wire import Wire, new_connection
from tests.wire.messages import ping, pong
from weir.proxy.connection.usage import FORMER_MAX
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.connection.usage_registry import UsageRegistry


def registry_of(registries: UsageRegistries) -> UsageRegistry:
    return registries.of(None)._registry


def wire_of(registries: UsageRegistries) -> Wire:
    return Wire(recorded(new_connection(), registries))


def say(wire: Wire, name: bytes, now_ms: int = 1) -> None:
    wire.exchange(now_ms, ping(1, name), pong())
    wire.to_broker.clear()
    wire.to_client.clear()


def test_invented_client_ids_beyond_the_bound_share_the_overflow_entity() -> None:
    taken = Taken(UsageRegistries(entities_max=10, trace_share=1.0))
    wires = [wire_of(taken.registries) for _ in range(3)]
    for number in range(1000):
        say(wires[number % 3], b"%d" % number)
        assert len(registry_of(taken.registries)) <= 10
    records = taken.drain()
    assert len(records) == 11
    assert total(records, client_id="<others>", user="<others>")["requests"] == 990
    assert total(records)["bytes_in"] == sum(len(ping(1, b"%d" % number)) for number in range(1000))
    assert {trace.client_id for trace in taken.traces} == {str(number) for number in range(10)}


def test_long_names_in_usage_records_are_shortened() -> None:
    taken = Taken(UsageRegistries())
    say(wire_of(taken.registries), b"x" * 30_000)
    (record,) = taken.drain()
    assert len(record.client_id) == 256
    assert record.bytes_in > 30_000


def test_the_former_clients_of_a_connection_are_bounded() -> None:
    registries = UsageRegistries()
    wire = wire_of(registries)
    for number in range(1000):
        say(wire, b"%d" % number)
        assert wire.connection.client.usage is not None
        assert len(wire.connection.client.usage._former) <= FORMER_MAX


def test_pending_request_traces_are_bounded_and_drops_are_counted() -> None:
    taken = Taken(UsageRegistries(trace_share=1.0, traces_max=5))
    wire = wire_of(taken.registries)
    for _request in range(20):
        say(wire, b"a")
    assert taken.registries.traces_dropped == 15
    taken.drain()
    assert len(taken.traces) == 5
    say(wire, b"a")
    wire.connection.end(1)
    taken.drain()
    assert len(taken.traces) == 6
    assert total(taken.records)["requests"] == 21, "records have what traces have not"


def test_the_same_clients_are_traced_at_every_broker() -> None:
    names = [f"client {number}" for number in range(2000)]
    sampled = []
    for _weir in range(2):
        registries = UsageRegistries(trace_share=0.5)
        for broker in (1, 2, None):
            usage = registries.of(broker)
            chosen = set()
            for name in names:
                usage.become("alice", name)
                assert usage._client is not None
                if usage._client.traced:
                    chosen.add(name)
            sampled.append(chosen)
    assert all(chosen == sampled[0] for chosen in sampled)
    assert 900 < len(sampled[0]) < 1100
