"""Throttles that other connections of a client have caused: an open connection never waits for them, a new
one for its first request, once and for a few seconds (KIP-219; a broker holds back neither).
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.matrix import in_one_test
from tests.proxy.playbook import Playbook
from tests.proxy.request_costs import LIMIT_US, spend, timed
from tests.proxy.sasl import log_in
from tests.proxy.throttled import RATE, produce_budget, throttled_quotas
from tests.proxy.wire import APP, FIRST_HOLD_MS, new_connection, quota_table
from tests.quotas.changes import put_in_force
from tests.wire.frames import body_of, padded, request, response
from tests.wire.messages import ping, pong, produce, produced
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.effects import NOTHING
from weir.proxy.connection.state import State
from weir.proxy.connection.waits import waits_because
from weir.quotas import BrokerQuotas, Budget, Entity, QuotaKey, QuotaTable

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
LATER_MS: Final = 12_000
"""When bytes that were charged at 0 count no more; a throttle that they have caused may last for longer."""
ALICE: Final = Entity(user="alice")


def overspend(budget: Budget, now_ms: int = 0) -> None:
    assert budget.charge(70_000, now_ms) > 0
    assert budget.throttled_until_ms >= now_ms + 60_000


def exchange(play: Playbook, asked: bytes, answered: bytes = b"") -> None:
    play.forwards(asked)
    if answered:
        play.returns(answered)


METADATA: Final = request(MetadataRequest(topics=[]), 5, 2), response(MetadataResponse(), 5, 2)
VERSIONS: Final = request(ApiVersionsRequest(), 0, 2), response(ApiVersionsResponse(), 0, 2)
ALL_TOPICS: Final = request(FetchRequest(max_bytes=100), 11, 2), response(FetchResponse(), 11, 2)
BETWEEN: Final = {
    "nothing": [],
    "metadata": [METADATA],
    "a fetch": [ALL_TOPICS],
    "acks -1": [(produce(2, 100, acks=-1), produced(2))],
    "acks 0": [(produce(2, 100, acks=0), b"")],
    "another version": [(produce(2, 100, version=9), produced(2, version=9))],
    "another client-id": [(padded(request(ProduceRequest(acks=1), 7, 2, b"else"), 100), produced(2))],
    "no client-id": [(padded(request(ProduceRequest(acks=1), 7, 2, None), 100), produced(2))],
    "all of them": [METADATA, ALL_TOPICS, VERSIONS, (produce(2, 100, acks=0), b"")],
}


@in_one_test
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("topic", [False, True], ids=["no topic has a rate", "a topic has a rate"])
def test_an_open_producer_does_not_wait_for_throttles_of_other_connections(between: str, topic: bool) -> None:
    """Fault 1 of issue 16: produce, metadata, produce was held for 22 s without a word."""
    rates = {(Entity(topic="elsewhere"), PRODUCE): 1.0} if topic else {}
    quotas = BrokerQuotas.create(QuotaTable({**quota_table(produce=RATE).values, **rates}))
    with Playbook(connection=new_connection(quotas=quotas)) as play:
        exchange(play, produce(1, 100), produced(1))
        overspend(produce_budget(quotas))
        play.at(LATER_MS)
        for asked, answered in BETWEEN[between]:
            exchange(play, asked, answered)
        exchange(play, produce(3, 100), produced(3))


def test_the_first_produce_request_of_a_new_principal_is_held() -> None:
    """What it has asked before it was known does not open the connection; nor does another principal."""
    quotas = BrokerQuotas.create(quota_table(produce=RATE, entity=ALICE))
    budget = quotas.ledger("alice", "app", 0).produce
    assert isinstance(budget, Budget)
    overspend(budget)
    with Playbook(connection=new_connection(quotas=quotas)) as play:
        log_in(play, "bob")
        exchange(play, produce(1, 100), produced(1))
        log_in(play, "alice")
        play.client(produce(2, 100))
        play.muted_until(FIRST_HOLD_MS)


# New connections


@pytest.mark.parametrize("before", ["nothing", "metadata", "a fetch"])
def test_the_first_produce_request_of_a_connection_is_held_once(before: str) -> None:
    """Whatever was asked before, and however much longer others make their client wait."""
    quotas = throttled_quotas(produce_s=60)
    with Playbook(connection=new_connection(quotas=quotas)) as play:
        play.at(LATER_MS)
        for asked, answered in BETWEEN[before]:
            exchange(play, asked, answered)
        play.client(produce(1, 100), ping(2), produce(3, 100))
        play.muted_until(LATER_MS + FIRST_HOLD_MS)
        play.waits(State.THROTTLED)
        assert (
            waits_because(play.connection, play.now_ms) == "a throttle time of producer_byte_rate is not over"
        )
        play.at(LATER_MS + FIRST_HOLD_MS - 1)
        play.silent()
        assert produce_budget(quotas).charged == 70_000
        play.at(LATER_MS + FIRST_HOLD_MS)
        play.to_broker(produce(1, 100), ping(2), produce(3, 100))
        assert produce_budget(quotas).charged == 70_200
        play.returns(produced(1), pong(2), produced(3))


def test_a_first_produce_request_is_not_held_if_that_is_configured() -> None:
    """As at a broker: it is forwarded, charged, and told its own throttle time."""
    quotas = throttled_quotas(produce_s=60)
    with Playbook(connection=new_connection(quotas=quotas, first_hold_ms_max=0)) as play:
        play.forwards(produce(1, 100))
        play.muted_until(60_100)
        play.returns(produced(1), told=produced(1, throttle_ms=60_100))


# Told: in the first response that can


def test_the_throttle_of_an_acks_0_request_is_told_in_the_next_response() -> None:
    with Playbook(quota_table(produce=RATE)) as play:
        play.forwards(ping(1), ping(2), produce(3, 12_106, acks=0))
        play.muted_until(2106)
        play.at(100).returns(pong(1), told=response(HeartbeatResponse(throttle_time_ms=2006), 4, 1))
        play.at(200).returns(pong(2))


def test_a_throttle_is_told_in_the_first_response_whose_version_has_the_field() -> None:
    with Playbook(quota_table(produce=RATE)) as play:
        old = request(HeartbeatRequest(), 0, 1), response(HeartbeatResponse(), 0, 1)
        play.forwards(old[0], ping(2), produce(3, 12_106, version=0))
        play.muted_until(2106)
        play.at(100).broker(old[1], pong(2), produced(3, version=0))
        told = response(HeartbeatResponse(throttle_time_ms=2006), 4, 2)
        play.to_client(old[1], told, produced(3, version=0))


def test_a_throttle_that_a_response_can_tell_is_told_there_only() -> None:
    with Playbook(quota_table(produce=RATE)) as play:
        play.forwards(ping(1), produce(2, 12_106))
        play.muted_until(2106)
        play.broker(pong(1), produced(2))
        play.to_client(pong(1), produced(2, throttle_ms=2106))


def test_a_request_time_throttle_is_told_in_the_next_response_if_its_own_lacks_the_field() -> None:
    """The next one is of a client without a quota: it shares the connection, and so waits as well."""
    connection = timed()
    old = request(HeartbeatRequest(), 0, 1), response(HeartbeatResponse(), 0, 1)
    free = request(HeartbeatRequest(), 4, 2, b"free")
    with Playbook(connection=connection) as play:
        play.forwards(old[0], free)
        spend(connection, LIMIT_US)
        play.returns(old[1])
        play.muted_until(500)
        play.at(100).returns(pong(2), told=response(HeartbeatResponse(throttle_time_ms=400), 4, 2))


def test_a_throttle_is_told_by_a_response_under_way_though_its_first_part_was_judged_before() -> None:
    """A response that must be whole to be rewritten: its first part was charged, to a shadow quota."""
    table = QuotaTable({(APP, PRODUCE): RATE}, {(APP, FETCH): RATE})
    endpoint = FetchResponse.NodeEndpoint(node_id=1, host="kafka", port=9092)
    asked, unanswered = request(FetchRequest(max_bytes=100), 16, 1), produce(2, 12_106, acks=0)
    answer = response(FetchResponse(node_endpoints=[endpoint]), 16, 1)
    with Playbook(table) as play:
        play.forwards(asked)
        play.broker(answer[:30])
        play.forwards(unanswered)
        play.muted_until(2106)
        play.broker(answer[30:])
        told = body_of(bytes(play.wire.to_client), FetchResponse, 16)
        assert told.throttle_time_ms == 2106
        play.wire.to_client.clear()


def test_a_throttle_that_is_measured_in_parts_makes_no_other_request_wait() -> None:
    """A response whose head has gone on exceeds a topic's rate: the next fetch of the topic is told."""
    a = Entity(topic="a")
    connection = new_connection(QuotaTable(None, {(a, FETCH): 1000.0}), buffer_bytes=1000)

    def fetch_of_a(number: int, *, least: bool = False) -> bytes:
        topics = [FetchRequest.FetchTopic(topic="a")]
        asked = FetchRequest(topics=topics, max_bytes=100, max_wait_ms=500, min_bytes=1)
        if least:
            asked = FetchRequest(topics=topics, max_bytes=1, max_wait_ms=0, min_bytes=0)
        return request(asked, 12, number)

    asked = fetch_of_a(1)
    partition = FetchResponse.PartitionData(records=b"r" * 12_000)
    topic = FetchResponse.FetchableTopicResponse(topic="a", partitions=[partition])
    answer = response(FetchResponse(responses=[topic]), 12, 1)
    with Playbook(connection=connection) as play:
        play.forwards(asked, ping(2))
        put_in_force(connection.quotas, QuotaTable({(a, FETCH): 1000.0}))
        play.returns(answer)
        play.muted_until(0)
        play.at(100).returns(pong(2))
        play.client(fetch_of_a(3))
        play.to_broker(fetch_of_a(3, least=True))
        play.broker(response(FetchResponse(), 12, 3))
        play.to_client(response(FetchResponse(throttle_time_ms=1900), 12, 3))
        play.muted_until(2000)


def test_holds_of_a_new_connection_for_several_quotas_end_by_the_same_time() -> None:
    """Its client owes request time for a second, and bytes for far longer."""
    table = QuotaTable(
        {(APP, QuotaKey.PRODUCER_BYTE_RATE): 100.0, (APP, QuotaKey.REQUEST_PERCENTAGE): 0.0005}
    )
    quotas = BrokerQuotas.create(table)
    ledger = quotas.ledger("ANONYMOUS", "app", 0)
    assert ledger.charge_produce(100_000, 0) > FIRST_HOLD_MS
    assert 0 < ledger.charge_request(0, 5000.0, 0) < FIRST_HOLD_MS
    with Playbook(connection=timed(table, quotas=quotas)) as play:
        play.client(produce(1, 100))
        play.muted_until(1000)
        play.at(1000)
        play.muted_until(FIRST_HOLD_MS)
        play.at(FIRST_HOLD_MS)
        play.to_broker(produce(1, 100))
        play.muted_until(play.connection.throttled_until_ms)


def test_a_connection_says_why_it_takes_no_request() -> None:
    with Playbook(connection=new_connection(in_flight_max=1)) as play:
        assert waits_because(play.connection, play.now_ms) == ""
        play.client(ping(1), ping(2))
        play.to_broker(ping(1))
        assert waits_because(play.connection, play.now_ms) == "too many requests are in flight"
        play.broker(pong(1))
        play.to_broker(ping(2))
        play.to_client(pong(1))
        play.broker(pong(2))
        play.to_client(pong(2))
    connection = new_connection()
    connection.client_end.unsent = memoryview(b"x")
    assert waits_because(connection, 0) == "the client does not read its responses"
    connection.client_end.unsent, connection.broker_end.unsent = NOTHING, memoryview(b"x")
    assert waits_because(connection, 0) == "the broker does not read its requests"
    connection.broker_end.unsent, connection.client_end.held_until_ms = NOTHING, 10
    connection.client_end.rest_bytes = 1
    assert waits_because(connection, 9) == "a topic in the request that is arriving is over its rate"
    assert waits_because(connection, 10) == ""
    connection.client_end.turn = connection.clock.turn
    assert waits_because(connection, 10) == "other connections have their turn"
    connection.clock.turn += 1
    connection.client_end.rest_bytes = 0
    connection.hold_response(5)
    assert waits_because(connection, 4) == "brokers in a response have no listeners yet"


def test_a_pause_that_is_over_before_a_throttle_leaves_the_throttle_its_quota() -> None:
    """Else nobody could end the wait (`weir release`)."""
    connection = new_connection()
    connection.mute(1000, QuotaKey.REQUEST_PERCENTAGE)
    connection.pause(10)
    assert (connection.throttled_until_ms, connection.throttled_by) == (1000, QuotaKey.REQUEST_PERCENTAGE)
    assert connection.end_wait(5)


def test_a_draining_connection_says_what_it_still_waits_for() -> None:
    with Playbook() as play:
        play.forwards(ping(1))
        play.client(ping(2)[:9])
        play.drain()
        assert waits_because(play.connection, 0) == "the broker has not answered"
        play.returns(pong(1))
        assert waits_because(play.connection, 0) == "a request has arrived in part"
        play.client(ping(2)[9:])
        play.to_broker(ping(2))
        play.returns(pong(2))
        play.closed(CloseReason.DRAINED)
