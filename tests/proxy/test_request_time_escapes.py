"""What clients may try to get more of their broker's time than they may have, and that nobody is stalled."""

from __future__ import annotations

import gzip
import struct
from typing import Final

import pytest

from tests.kfake.cluster import Cluster
from tests.kfake.direct import Client
from tests.proxy.playbook import Playbook
from tests.proxy.request_costs import (
    EACH_US,
    LIMIT_US,
    charged_us,
    costs,
    everybody,
    spend,
    the_budget,
    time_table,
    timed,
)
from tests.proxy.wire import Wire
from tests.wire.frames import padded, request, response, split, unknown_request
from tests.wire.messages import ping, pong
from weir.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.inbound import LOOK_BYTES
from weir.proxy.connection.state import State
from weir.quotas import BrokerQuotas
from weir.quotas.costs.request_costs import ApiCost

WINDOWS_MS: Final = 11_000
"""As long as what was used counts."""


def seen_by_broker(connection: Connection, frames: bytes, until_ms: int, step_ms: int = 10) -> int:
    """Send all of it at once; return the number of requests that a broker has seen, which answers at once."""
    client = Client(connection, Cluster())
    client.wire.feed(0, client=frames)
    for now_ms in range(0, until_ms, step_ms):
        client.answer(now_ms)
        client.wire.feed(now_ms)
    return len(client.cluster.received)


# Pipelining


def test_pipelining_gains_hardly_any_request_time() -> None:
    """One connection, one request at a time, as at a broker: 20 from cold, then one per 500 ms or
    more. Behind Weir a few more may be under way before the first is charged.
    """
    connection = timed(in_flight_max=1000)
    seen = seen_by_broker(connection, b"".join(ping(number) for number in range(2000)), WINDOWS_MS)
    assert 20 + 11 <= seen <= 20 + 2 * 11 + 32


def test_heavy_pipelined_requests_are_charged_before_all_are_in_flight() -> None:
    connection = timed(in_flight_max=1000)
    wire = Wire(connection)
    wire.feed(0, client=b"".join(ping(number) for number in range(1000)))
    assert len(split(bytes(wire.to_broker))) <= 32
    wire.feed(0, broker=b"".join(map(pong, range(11))))  # half of the limit is in use then
    assert len(connection.in_flight) <= 32
    passed = len(split(bytes(wire.to_broker)))
    wire.feed(0, broker=pong(11))
    assert len(split(bytes(wire.to_broker))) == passed <= 32 + 11  # until all of them are answered


@pytest.mark.parametrize(("configured", "most"), [(1000, 32), (33, 32), (31, 31)])
def test_a_client_with_a_request_quota_has_at_most_32_requests_under_way(configured: int, most: int) -> None:
    """Exactly as many as `proxy.connection` promises, however far from its limit the client is."""
    connection = timed(time_table(100.0), in_flight_max=configured)
    with Playbook(connection=connection) as play:
        play.client(*(ping(number) for number in range(50)))
        play.to_broker(*(ping(number) for number in range(most)))
        play.returns(pong(0))
        play.to_broker(ping(most))


def test_a_client_near_its_request_time_limit_has_one_request_in_flight() -> None:
    connection = timed()
    spend(connection, LIMIT_US * 0.5 + EACH_US)
    with Playbook(connection=connection) as play:
        play.client(ping(1)[:18])
        play.to_broker(ping(1)[:18])
        play.client(ping(1)[18:20])
        play.to_broker(ping(1)[18:20])
        play.client(ping(1)[20:], ping(2), ping(3))
        play.to_broker(ping(1)[20:])
        play.returns(pong(1))
        play.to_broker(ping(2))
        play.returns(pong(2))
        play.to_broker(ping(3))
        play.returns(pong(3))


# Connections


def test_a_connection_per_request_is_throttled_as_long_as_one_connection() -> None:
    quotas = BrokerQuotas.create(time_table())
    now_ms, seen = 0, 0
    while now_ms < WINDOWS_MS:
        connection = timed(quotas=quotas)
        wire = Wire(connection)
        wire.feed(now_ms, client=ping(seen))
        if not wire.to_broker:
            assert now_ms < connection.throttled_until_ms <= now_ms + 1000
            now_ms = connection.throttled_until_ms
            wire.feed(now_ms)
        assert wire.to_broker
        seen += 1
        wire.feed(now_ms, broker=pong(seen - 1))
        connection.end(now_ms)
        now_ms += 1
    assert 20 + 11 <= seen <= 20 + 2 * 11 + 1


def test_a_connection_waits_for_throttles_of_others_only_before_its_first_request() -> None:
    """And once: others of its client may be told to wait again and again."""
    quotas = BrokerQuotas.create(time_table())
    connection = timed(quotas=quotas)
    spend(connection, LIMIT_US + EACH_US)
    with Playbook(connection=connection) as play:
        play.client(ping(1))
        play.muted_until(500)
        connection.now_ms = 400
        spend(connection, 10 * LIMIT_US)  # until 1400
        play.at(500)
        play.to_broker(ping(1))
        assert connection.state != State.THROTTLED
        play.returns(pong(1), told=pong(1, 1000))
        play.muted_until(1500)


def test_an_admitted_connection_is_no_longer_held() -> None:
    """Its first request is under way then, and its second one waits for the response of that only."""
    connection = timed()
    spend(connection, LIMIT_US + EACH_US)
    with Playbook(connection=connection) as play:
        play.client(ping(1), ping(2))
        play.waits(State.THROTTLED)
        play.muted_until(500)
        assert play.tick() == 500
        play.to_broker(ping(1))
        play.waits(State.SERIAL)
        play.broker(pong(1))
        play.to_client(pong(1, 500))  # 1100 µs are 50 more than 10.5 s allow
        play.muted_until(1000)
        play.waits(State.THROTTLED)
        assert play.tick() == 1000
        play.to_broker(ping(2))


@pytest.mark.parametrize("most_ms", [0, 200])
def test_a_first_request_waits_for_request_time_at_most_as_long_as_configured(most_ms: int) -> None:
    connection = timed(first_hold_ms_max=most_ms)
    spend(connection, LIMIT_US + EACH_US)
    with Playbook(connection=connection) as play:
        play.client(ping(1))
        if most_ms:
            play.muted_until(most_ms)
            assert play.tick() == most_ms
        play.to_broker(ping(1))


@pytest.mark.parametrize("asked", [1, 5])
def test_closing_before_the_response_saves_no_request_time(asked: int) -> None:
    connection = timed()
    wire = Wire(connection)
    wire.feed(0, client=b"".join(ping(number) for number in range(asked)))
    connection.end(0)
    assert charged_us(connection) == asked * EACH_US


# Names


def test_a_request_that_ends_within_its_client_id_is_refused() -> None:
    with Playbook(connection=timed()) as play:
        frame = ping(1)
        play.client((12).to_bytes(4) + frame[4:16])
        play.violation(CloseReason.REQUEST_MALFORMED)


def test_a_header_that_fills_the_buffer_is_refused_from_a_throttled_client() -> None:
    """Before acks come tagged fields of any length: they are not kept until acks are here."""
    connection = timed(buffer_bytes=1000)
    spend(connection, LIMIT_US + EACH_US)
    frame = request(ProduceRequest(acks=1), 9)
    tags = 12 + 2 + len("app")
    field_of_5000 = b"\x01\x00\x88\x27" + bytes(5000)
    cut = (len(frame) + 5000).to_bytes(4) + frame[4:tags] + field_of_5000
    with Playbook(connection=connection) as play:
        play.client(cut[:1000])
        play.violation(CloseReason.REQUEST_MALFORMED)


def test_unknown_apis_share_one_counter_of_a_request_budget() -> None:
    """There are 65,536 numbers to be invented: a budget does not keep them."""
    connection = timed(time_table(1e6))
    wire = Wire(connection)
    for api_key in range(200, 1200):
        wire.exchange(0, unknown_request(api_key, 0), pong(1))
    assert charged_us(connection) == 1000 * EACH_US
    assert len(the_budget(connection).by_api) <= 129


# Stalls


def test_replica_fetches_of_a_broker_near_its_limit_are_pipelined() -> None:
    """Though its principal is near the limit."""
    connection = timed(everybody(), brokers=frozenset({"kafka"}))
    connection.client.become("kafka")
    spend(connection, LIMIT_US * 0.9, user="kafka")
    with Playbook(connection=connection) as play:
        many = [request(FetchRequest(replica_id=2), 11, number) for number in range(5)]
        play.forwards(*many)


# Looks into requests


def batch(size: int) -> bytes:
    """Records of this size, packed by gzip into next to nothing (magic 2)."""
    packed = gzip.compress(bytes(size), mtime=0)
    head = struct.pack(">qiibihiqqqhii", 0, 49 + len(packed), 0, 2, 0, 1, 0, 0, 0, -1, -1, -1, 1)
    assert len(head) == 61
    return head + packed


def heavy(version: int, partitions: int = 5, size: int = 100_000) -> bytes:
    partition = [
        ProduceRequest.PartitionProduceData(index=index, records=batch(size)) for index in range(partitions)
    ]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=partition)
    return request(ProduceRequest(acks=-1, topic_data=[topic]), version)


LOOKED_INTO: Final = costs(
    {
        "Produce": ApiCost(
            us=10.0, us_acks_all=20.0, us_per_partition=30.0, us_per_unpacked_kb={"gzip": 1.0}
        ),
        "Fetch": ApiCost(us=10.0, us_per_request_kb=100.0, us_per_session_kb=100.0),
    }
)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_the_request_cost_does_not_depend_on_the_cut_of_a_produce_request(version: int) -> None:
    asked = heavy(version)
    for at in (4, 12, 16, 20, 30, 60, 100, 300, len(asked) - 1):
        connection = timed(costs_=LOOKED_INTO)
        wire = Wire(connection)
        for piece in (asked[:at], asked[at:]):
            wire.feed(0, client=piece)
        assert bytes(wire.to_broker) == asked
        wire.feed(0, broker=response(ProduceResponse(), version))
        packed_kb = (len(batch(100_000)) - 61) / 1000
        assert charged_us(connection) == pytest.approx(10 + 20 + 4 * 30 + 5 * (100 + 3 * packed_kb))


@pytest.mark.parametrize("version", [7, 12])
def test_the_cost_of_an_incremental_fetch_does_not_depend_on_its_cut(version: int) -> None:
    topic = FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition()] * 10)
    begun = request(FetchRequest(session_epoch=0, topics=[topic]), version)
    asked = request(FetchRequest(session_id=1, session_epoch=1), version)
    for at in range(len(asked)):
        connection = timed(costs_=LOOKED_INTO)
        wire = Wire(connection)
        for piece in (begun, asked[:at], asked[at:]):
            wire.feed(0, client=piece)
        assert bytes(wire.to_broker) == begun + asked
        wire.feed(0, broker=response(FetchResponse(), version) * 2)
        assert charged_us(connection) == pytest.approx(2 * (10 + (len(begun) - 4) / 10))


def test_a_long_request_is_buffered_only_as_far_as_its_cost_estimate_needs() -> None:
    connection = timed(costs_=LOOKED_INTO)
    wire = Wire(connection)
    asked = padded(heavy(8), 1_000_000)
    for start in range(0, len(asked), 10_000):
        wire.feed(0, client=asked[start : start + 10_000])
        assert wire.waiting_bytes < LOOK_BYTES
    assert bytes(wire.to_broker) == asked


def one_batch(version: int, records: bytes) -> bytes:
    """A produce request of one partition with one batch of 200,000 bytes, uncompressed unless `records` are a
    compressed one.
    """
    batch = records + bytes(200_000 - len(records))
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    return request(ProduceRequest(acks=-1, topic_data=[topic]), version)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_request_that_begins_like_the_last_one_waits_for_no_bytes_that_cannot_change_its_cost(
    version: int,
) -> None:
    connection = timed(costs_=LOOKED_INTO)
    wire = Wire(connection)
    asked = one_batch(version, b"")
    wire.feed(0, client=asked[:200])
    assert not wire.to_broker
    wire.feed(0, client=asked[200:])
    wire.feed(0, broker=response(ProduceResponse(), version))
    wire.to_broker.clear()
    wire.feed(0, client=asked[:200])
    assert wire.to_broker == asked[:200]
    wire.feed(0, client=asked[200:])
    wire.feed(0, broker=response(ProduceResponse(), version))
    assert wire.to_broker == asked
    assert charged_us(connection) == 2 * (10 + 20)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_compressed_request_that_begins_like_the_last_one_waits_until_its_cost_can_be_estimated(
    version: int,
) -> None:
    connection = timed(costs_=LOOKED_INTO)
    wire = Wire(connection)
    plain, packed = one_batch(version, b""), one_batch(version, batch(100_000))
    assert plain[:40] == packed[:40]
    wire.feed(0, client=plain)
    wire.feed(0, broker=response(ProduceResponse(), version))
    wire.to_broker.clear()
    wire.feed(0, client=packed[: LOOK_BYTES - 1])
    assert not wire.to_broker
    wire.feed(0, client=packed[LOOK_BYTES - 1 :])
    assert wire.to_broker == packed
    wire.feed(0, broker=response(ProduceResponse(), version))
    assert charged_us(connection) >= 2 * (10 + 20) + 100


# Produce without an answer


@pytest.mark.parametrize("version", [0, 7, 9, 12])
def test_acks_0_requests_are_not_held_on_new_connections(version: int) -> None:
    """What it sends costs no time, and would be lost if it closes at once. But whoever awaits one waits."""
    connection = timed()
    spend(connection, LIMIT_US + EACH_US)
    unanswered = request(ProduceRequest(acks=0), version)
    with Playbook(connection=connection) as play:
        for piece in (unanswered[:16], unanswered[16:18]):
            play.client(piece)
        play.client(unanswered[18:], unanswered)
        play.to_broker(unanswered, unanswered)
        play.client(request(ProduceRequest(acks=1), version, 2))
        play.muted_until(500)
        play.at(500)
        play.to_broker(request(ProduceRequest(acks=1), version, 2))
