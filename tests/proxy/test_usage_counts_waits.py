"""Usage where clients wait, come in pieces, or go: nothing is held up that was not, and times are right."""

from __future__ import annotations

from tests.kfake.controller import NODE, Controller
from tests.kfake.direct import Client
from tests.proxy.playbook import Playbook
from tests.proxy.usage_totals import START_MS, Taken, counted_wire, recorded, total
from tests.proxy.wire import APP, new_connection, quota_table
from tests.wire.frames import padded, request
from tests.wire.messages import produced
from weir.protocol.messages import MetadataRequest, ProduceRequest
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.inbound import LOOK_BYTES
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, QuotaKey, QuotaTable
from weir.quotas.client_quotas import mutation_rates


def counted(connection: Connection) -> Connection:
    return recorded(connection, UsageRegistries(trace_share=1.0))


def produce(number: int = 1, acks: int = 1, length: int = 6102) -> bytes:
    return padded(request(ProduceRequest(acks=acks), 7, number), length)


# What a request of up to 64 KB is awaited for


def test_a_counted_produce_request_is_forwarded_once_64_kb_arrived() -> None:
    frame = produce(length=200_000)
    with Playbook(connection=counted(new_connection())) as play:
        play.client(frame[: LOOK_BYTES - 1])
        play.silent()
        play.client(frame[LOOK_BYTES - 1 : LOOK_BYTES])
        play.to_broker(frame[:LOOK_BYTES])
        play.relays(frame[LOOK_BYTES:], produced())


# The same for clients


# Times, and what is counted of waits


def test_request_traces_have_the_times_of_request_and_response() -> None:
    taken, wire = counted_wire(new_connection(quota_table(produce=1000)))
    wire.feed(5, client=produce(1, length=12_306) + produce(2, length=100))
    wire.feed(9, broker=produced(1))
    until_ms = wire.connection.throttled_until_ms
    assert until_ms > 9
    taken.drain()
    wire.feed(until_ms)
    wire.feed(until_ms + 7, broker=produced(2))
    wire.connection.end(until_ms + 8)
    taken.drain()
    first, second = taken.traces
    assert (first.time_ms, first.answered_ms) == (START_MS + 5, START_MS + 9)
    assert (second.time_ms, second.answered_ms) == (START_MS + until_ms, START_MS + until_ms + 7)
    assert first.throttle_ms.producer_byte_rate == until_ms - 5
    assert first.charged_bytes == 12_306
    assert first.connection == second.connection == 1


def test_auto_created_topics_are_counted_as_usage_under_a_quota() -> None:
    """And not without one: this is said in the documentation."""
    for rate, partitions in ((1000.0, 3), (None, 0)):
        table = QuotaTable({} if rate is None else {(APP, QuotaKey.CONTROLLER_MUTATION_RATE): rate})
        quotas = BrokerQuotas.create(table, mutations=mutation_rates(11, 1))
        taken, controller, plans = Taken(UsageRegistries()), Controller(), Plans(Counters())
        frame = request(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")]), 12)
        for now_ms in (1, 2):
            connection = recorded(new_connection(quotas=quotas, plans=plans, node_id=NODE), taken.registries)
            Client(connection, controller).send(now_ms, frame)
        taken.drain()
        assert controller.sizes() == {"new": 3}
        assert total(taken.records).get("mutations", 0) == partitions
