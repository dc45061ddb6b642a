"""Cases of counting usage, one by one: who, when, how often, and what is left when a connection ends."""

from __future__ import annotations

import pytest

from tests.proxy.broker_query import answer, connection_of, delete, deleted, questions
from tests.proxy.request_costs import EACH_US, time_table, timed
from tests.proxy.sasl import authenticate, authenticated, bare, handshake, plain, shaken
from tests.proxy.usage_totals import START_MS, Taken, counted_wire, recorded, total
from tests.proxy.wire import APP, Wire, new_connection
from tests.wire.frames import framed, header, padded, request, response
from tests.wire.messages import ping, pong
from weir.protocol.api import ApiKey
from weir.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.handlers.broker_query import BrokerQuery, Pending
from weir.proxy.handlers.decisions import Query
from weir.proxy.handlers.usage_groups import APIS, group_index
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.usage.groups import GROUPS, ApiGroup


def wire_of(taken: Taken, **kwargs: object) -> Wire:
    return Wire(recorded(new_connection(**kwargs), taken.registries))  # type: ignore[arg-type]  # as `new_connection`


def traced() -> Taken:
    return Taken(UsageRegistries(trace_share=1.0))


def too_new(number: int) -> bytes:
    """An ApiVersions request that Weir answers itself."""
    return framed(header(ApiKey.API_VERSIONS, 99, number, b"app", tags=None))


# Who


def test_every_api_is_in_one_usage_group() -> None:
    named = [key for keys in APIS.values() for key in keys]
    assert sorted(named) == sorted(ApiKey)
    assert GROUPS[group_index(999)] is ApiGroup.OTHER
    assert GROUPS[group_index(-1)] is ApiGroup.OTHER
    assert set(APIS) == set(GROUPS) - {ApiGroup.OTHER}


def test_usage_before_and_after_authentication_has_separate_users() -> None:
    taken, wire = counted_wire()
    for user in ("alice", "bob"):
        for asked_, answered in (
            (handshake("PLAIN"), shaken()),
            (authenticate(plain(user)), authenticated()),
            (ping(), pong()),
        ):
            wire.exchange(1, asked_, answered)
    taken.drain()
    exchange = len(handshake("PLAIN")), len(authenticate(plain("alice"))), len(authenticate(plain("bob")))
    security = {
        user: total(taken.records, user=user, api="security").get("bytes_in", 0)
        for user in ("ANONYMOUS", "alice", "bob")
    }
    assert security == {
        "ANONYMOUS": exchange[0] + exchange[1],
        "alice": exchange[0] + exchange[2],  # who authenticates again is who it was until that has succeeded
        "bob": 0,
    }
    assert total(taken.records, user="alice", api="groups")["bytes_out"] == len(pong())
    assert total(taken.records, user="bob", api="groups")["bytes_out"] == len(pong())
    assert total(taken.records)["requests"] == 6


def test_sasl_v0_tokens_are_counted_as_bytes_and_not_as_requests() -> None:
    taken, wire = counted_wire()
    wire.exchange(1, handshake("PLAIN", 0), shaken(version=0))
    wire.exchange(1, bare(plain("alice")), bare(b""))
    wire.exchange(1, ping(), pong())
    taken.drain()
    sums = total(taken.records, api="security")
    assert sums["requests"] == 1
    assert sums["bytes_in"] == len(handshake("PLAIN", 0)) + len(bare(plain("alice")))
    assert sums["bytes_out"] == len(shaken(version=0)) + 4
    assert total(taken.records, user="alice")["requests"] == 1


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", CloseReason.REQUEST_TOO_LARGE),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03hello", CloseReason.TLS_ON_PLAIN_PORT),
        (framed(b"\0\3\0\1\0\0\0\1\0\x99short"), CloseReason.REQUEST_MALFORMED),
        (framed(header(ApiKey.PRODUCE, 99, 1, b"app", tags=None)), CloseReason.REQUEST_VERSION_UNKNOWN),
        (b"\0\0\0\1\0\0\0\0\0\0\0\0", CloseReason.REQUEST_TOO_SHORT),
    ],
)
def test_a_violation_is_counted_once(sent: bytes, reason: CloseReason) -> None:
    taken, wire = counted_wire()
    wire.feed(1, client=sent)
    wire.connection.end(1)
    taken.drain()
    assert wire.connection.effects.close_reason is reason
    assert total(taken.records) == {"errors": 1}
    assert {record.api for record in taken.records if record.errors} == {"other"}
    assert not taken.traces


def test_replica_fetches_have_no_charges_in_usage_records() -> None:
    taken, wire = counted_wire(timed(QuotaTable(), brokers=frozenset()))
    asked_, answered = request(FetchRequest(replica_id=1), 11), response(FetchResponse(), 11)
    wire.exchange(1, asked_, answered)
    taken.drain()
    assert total(taken.records) == {"requests": 1, "bytes_in": len(asked_), "bytes_out": len(answered)}


# How often


def test_a_connection_is_counted_once_per_interval_and_client_id() -> None:
    taken, wire = counted_wire()
    for number in range(6):
        wire.feed(1, client=ping(number, b"ab"[number % 2 : number % 2 + 1]))
    wire_of(taken).feed(1, client=ping(1, b"a"))
    sessions = {record.client_id: record.sessions for record in taken.drain()}
    assert sessions == {"a": 2, "b": 1}
    wire.feed(1, client=ping(9, b"a"))
    assert [record.sessions for record in taken.drain()] == [1]


# When a connection ends


def test_a_local_response_is_counted_when_it_is_sent() -> None:
    taken, wire = counted_wire()
    wire.feed(1, client=ping(1) + too_new(2))
    taken.drain()
    assert "bytes_out" not in total(taken.records)
    wire.feed(5, broker=pong(1))
    wire.connection.end(5)
    taken.drain()
    assert total(taken.records)["bytes_out"] == len(wire.to_client)
    assert [trace.answered_ms for trace in taken.traces] == [START_MS + 5, START_MS + 5]


def test_an_informative_broker_query_is_counted_for_its_request() -> None:
    def find_out() -> object:
        yield from questions(1)
        return None

    taken, wire = counted_wire(connection_of(find_out, again=True))  # type: ignore[arg-type]  # a query
    wire.feed(1, client=delete())
    wire.feed(2, broker=answer())
    wire.feed(3, broker=deleted())
    wire.connection.end(3)
    taken.drain()
    (trace,) = taken.traces
    sums = total(taken.records)
    assert sums["requests"] == 1
    assert sums["bytes_in"] == trace.bytes_in == len(delete())
    assert sums["bytes_out"] == trace.bytes_out == len(wire.to_client)
    assert trace.request_time_us == pytest.approx(sums["request_time_us"], abs=0.01)


def test_a_deferred_response_is_counted_when_it_is_sent() -> None:
    taken, pending = traced(), Pending()

    def query() -> BrokerQuery:
        yield pending
        return pong()

    connection = recorded(new_connection(), taken.registries)
    plan = connection.plans.make(ApiKey.HEARTBEAT, 4)
    plan.admit = lambda *_frame: Query(query())
    wire = Wire(connection)
    wire.feed(1, client=ping())
    taken.drain()
    connection.clock.now_us = 7000
    pending.done()
    plan.admit = None
    wire.feed(7, client=ping(2))  # whoever moves bytes takes it along
    connection.end(8)
    taken.drain()
    assert bytes(wire.to_client) == pong()
    assert total(taken.records)["bytes_out"] == len(pong())
    assert [trace.answered_ms for trace in taken.traces] == [START_MS + 7, 0]


def test_a_client_that_leaves_before_the_response_is_counted_with_its_charge() -> None:
    taken, wire = counted_wire(timed(time_table(0.00001)))
    wire.feed(1, client=ping())
    wire.connection.end(2)
    taken.drain()
    (budget,) = wire.connection.quotas.request
    sums = total(taken.records)
    assert sums["request_time_us"] == EACH_US
    assert budget.throttled == 1
    assert sums["request_percentage ms"] == budget.throttle_ms_total
    assert sums["request_percentage violations"] == 1


@pytest.mark.parametrize("leaves", [True, False])
def test_counted_request_time_is_scaled_as_charges(leaves: bool) -> None:
    quotas = BrokerQuotas.create(time_table(1e9), request_time_scale=2.5)
    taken, wire = counted_wire(timed(quotas=quotas))
    wire.feed(1, client=ping())
    if not leaves:
        wire.feed(1, broker=pong())
    wire.connection.end(1)
    taken.drain()
    (budget,) = quotas.request
    assert total(taken.records)["request_time_us"] == pytest.approx(budget.charged * 10_000) == 2.5 * EACH_US


# What is charged


@pytest.mark.parametrize("entity", [APP, Entity(topic="t")], ids=["the client's quota", "a topic's rate"])
def test_a_fetch_answered_without_records_is_counted_by_its_throttle_time(entity: Entity) -> None:
    """3000 bytes and some at 100 bytes/s are worth more than 30 s, of which 10 have passed. The other
    connection asks a second later, and is told a second less.
    """
    taken = traced()
    first = recorded(
        new_connection(QuotaTable({(entity, QuotaKey.CONSUMER_BYTE_RATE): 100.0})), taken.registries
    )
    other = recorded(new_connection(quotas=first.quotas), taken.registries)
    fetch = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t")])
    partition = FetchResponse.PartitionData(records=b"r" * 3000)
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    for connection, now_ms in ((first, 0), (other, 1000)):
        wire = Wire(connection)
        wire.exchange(now_ms, request(fetch, 11), response(FetchResponse(responses=[topic]), 11))
        connection.end(now_ms)
    taken.drain()
    topics = first.quotas.topics
    (budget,) = first.quotas.fetch if topics is None else topics.fetch.budgets()
    quota = "consumer_byte_rate" if entity is APP else "topic_byte_rate"
    told_ms = [getattr(trace.throttle_ms, quota) for trace in taken.traces]
    assert 20_000 <= told_ms[0] < 22_000
    assert told_ms[1] == told_ms[0] - 1000
    assert [trace.charged_bytes > 0 for trace in taken.traces] == [True, False]
    assert total(taken.records)[f"{quota} ms"] == sum(told_ms) == budget.throttle_ms_total
    assert total(taken.records)[f"{quota} violations"] == budget.throttled == 2
    assert {name for name in total(taken.records) if name.endswith(" ms")} == {f"{quota} ms"}


def test_usage_counts_throttle_times_as_they_are_told_where_throttle_ms_max_cuts_them() -> None:
    """Each quota is exceeded far enough for a wait of a second or more; the last fetch is told a rest."""
    taken, topic = traced(), Entity(topic="t")
    table = QuotaTable(
        {
            (APP, QuotaKey.PRODUCER_BYTE_RATE): 100.0,
            (APP, QuotaKey.CONSUMER_BYTE_RATE): 100.0,
            (topic, QuotaKey.CONSUMER_BYTE_RATE): 100.0,
            (APP, QuotaKey.REQUEST_PERCENTAGE): 0.0001,
        }
    )
    quotas = BrokerQuotas.create(table)
    records = FetchResponse.PartitionData(records=b"r" * 3000)
    answer = FetchResponse.FetchableTopicResponse(topic="t", partitions=[records])
    fetch = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t")])
    fetched = request(fetch, 11), response(FetchResponse(responses=[answer]), 11)
    produced = padded(request(ProduceRequest(acks=1), 7), 3000), response(ProduceResponse(), 7)
    for now_ms, (asked_, answered) in enumerate((produced, fetched, fetched)):
        connection = recorded(timed(table, quotas=quotas, throttle_ms_max=700), taken.registries)
        connection.client.first_request_seen = True
        wire = Wire(connection)
        wire.exchange(now_ms, asked_, answered)
        assert connection.throttled_until_ms == now_ms + 700
        connection.end(now_ms)
    taken.drain()
    told = [trace.throttle_ms for trace in taken.traces]
    assert [one.producer_byte_rate for one in told] == [700, 0, 0]
    assert [one.consumer_byte_rate for one in told] == [0, 700, 700]
    assert [one.topic_byte_rate for one in told] == [0, 700, 700]
    assert [one.request_percentage for one in told] == [700, 700, 700]
