"""Fetches of a client that is over its quota: they go to the broker asking for least, and come back without
records, telling the throttle time, with all else as the broker sent it (KIP-219, KIP-227).
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.matrix import in_one_test
from tests.protocol.generate import sample
from tests.proxy.playbook import Playbook
from tests.proxy.request_costs import charged_us, costs, timed
from tests.proxy.throttled import RATE, fetch_budget, throttled_quotas
from tests.proxy.usage_totals import Taken, recorded, total
from tests.proxy.wire import APP, Wire, in_turns, new_connection, quota_table
from tests.wire.frames import body_of, framed, padded, request, response
from tests.wire.messages import emptied, fetch, fetched, least, length_of, ping, pong
from weir.protocol.codec import codec
from weir.protocol.messages import FetchRequest, FetchResponse
from weir.protocol.values import schema_of
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection import emptied as emptied_module
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.effects import SCANNED_ELEMENTS
from weir.proxy.connection.state import State
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.quotas import DEFAULT, BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.costs.request_costs import ApiCost

FETCH_KEY: Final = 1
VERSIONS: Final = list(schema_of(FetchResponse).versions)
DATA: Final = Path(__file__).parents[1] / "protocol" / "data" / "kafka_encodings.json"
KAFKA_SAMPLES: Final[dict[str, str]] = json.loads(DATA.read_text())["messages"]["FetchResponse"]["sample"]
"""By version: what Kafka's own classes write for a response with something in every field."""
BROKERS_MS: Final = 77
"""The broker's own throttle time in these."""
UNTIL_MS: Final = 60_000
NOW_MS: Final = 12_000
"""When a throttled client fetches; nothing that was charged at 0 counts any more."""
ODD_TAGS: Final = b"\x02\x05\x03abc\x81\x01\x00"
"""Two tagged fields in a response's header that nobody knows."""
SMALL_BYTES: Final = 1000
"""A buffer that long responses do not fit in."""
NODE_ENDPOINTS: Final = [version for version in VERSIONS if version >= 16]
FIRST_PORT: Final = 19093
"""Weir listens for broker n at this port + n in these tests."""


def throttled(**kwargs: Any) -> Connection:
    """A new connection of a client that is told to wait for a minute."""
    return new_connection(quotas=throttled_quotas(fetch_s=UNTIL_MS // 1000), **kwargs)


def charged(connection: Connection) -> float:
    """Return what the client was charged by its fetches, all of them, since it was throttled."""
    return fetch_budget(connection.quotas).charged - UNTIL_MS - 10_000


def without_records(value: FetchResponse, version: int, throttle_ms: int) -> FetchResponse:
    """Return the response as a client over its quota gets it, the brokers' addresses in it being Weir's."""
    copy = deepcopy(value)
    copy.throttle_time_ms = max(throttle_ms, copy.throttle_time_ms) if version >= 1 else 0
    for topic in copy.responses:
        for partition in topic.partitions:
            partition.records = None if partition.records is None else b""
    for node in copy.node_endpoints:
        node.host, node.port = "weir", FIRST_PORT + node.node_id
    return copy


# In every version


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("brokers_ms", [0, 10**6])
def test_a_fetch_over_the_quota_gets_everything_but_records_in_every_version(
    version: int, brokers_ms: int
) -> None:
    """Session id, errors, high watermarks, aborted transactions, tagged fields stay; the next fetch after the
    mute is delivered.
    """
    connection = throttled()
    asked = msgspec.structs.replace(sample(FetchRequest, version), max_wait_ms=500, min_bytes=1)
    asked.max_bytes = 900 if version >= 3 else asked.max_bytes
    as_least = msgspec.structs.replace(asked, max_wait_ms=0, min_bytes=0)
    as_least.max_bytes = 1 if version >= 3 else asked.max_bytes
    answer = sample(FetchResponse, version)
    answer.throttle_time_ms = brokers_ms if version >= 1 else 0
    with Playbook(connection=connection) as play:
        play.at(NOW_MS).client(request(asked, version, 1), ping(2), request(asked, version, 3))
        play.to_broker(request(as_least, version, 1))
        play.waits(State.SERIAL)
        play.at(NOW_MS + 40).broker(response(answer, version, 1, tags=ODD_TAGS))
        told = without_records(answer, version, UNTIL_MS - NOW_MS - 40)
        play.to_client(response(told, version, 1, tags=ODD_TAGS))
        play.muted_until(UNTIL_MS)
        play.waits(State.THROTTLED)
        assert charged(connection) == 0
        assert play.tick() == UNTIL_MS
        play.to_broker(ping(2), request(asked, version, 3))
        answer.throttle_time_ms = 0
        play.broker(pong(2), response(answer, version, 3))
        delivered = without_records(answer, version, 0)
        delivered.responses = answer.responses
        play.to_client(pong(2), response(delivered, version, 3))
        assert charged(connection) == length_of(response(answer, version, 3)) - (version >= 12)


@in_one_test
@pytest.mark.parametrize("version", [version for version in VERSIONS if version < NODE_ENDPOINTS[0]])
def test_bytes_of_kafkas_own_classes_lose_their_records_and_tell_the_throttle_for_any_cut(
    version: int,
) -> None:
    body = bytes.fromhex(KAFKA_SAMPLES[str(version)])
    records, empty = (b"\x08records", b"\x01") if version >= 12 else (b"\0\0\0\x07records", bytes(4))
    assert body.count(records) == 1
    expected = body.replace(records, empty)
    if version >= 1:
        assert expected.startswith(BROKERS_MS.to_bytes(4))
        expected = (UNTIL_MS - NOW_MS).to_bytes(4) + expected[4:]
    head = b"\0\0\0\x01" + (b"\0" if version >= 12 else b"")
    for cut in range(version % 4, 4 + len(head) + len(body), 4):
        wire = Wire(throttled())
        wire.feed(NOW_MS, client=fetch(1, version))
        frame = framed(head + body)
        wire.feed(NOW_MS, broker=frame[:cut])
        assert not wire.to_client
        wire.feed(NOW_MS, broker=frame[cut:])
        assert bytes(wire.to_client) == framed(head + expected), cut


# Responses larger than the buffer


def large(version: int, record_bytes: int, partitions: int, throttle_ms: int = 0) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse(
        topic="t" if version < 13 else "",
        partitions=[
            FetchResponse.PartitionData(partition_index=index, high_watermark=7, records=b"r" * record_bytes)
            for index in range(partitions)
        ],
    )
    return FetchResponse(responses=[topic], throttle_time_ms=throttle_ms if version else 0)


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chunk", [31, 699, SMALL_BYTES, 50_000])
def test_a_response_larger_than_the_buffer_loses_its_records_in_any_chunks(version: int, chunk: int) -> None:
    """Nothing of it is kept meanwhile but its head; the response behind it goes on as it is."""
    connection = throttled(buffer_bytes=SMALL_BYTES)
    answer = response(large(version, 5000, partitions=3), version, 2) + pong(3)
    with Playbook(connection=connection) as play:
        play.client(ping(1), fetch(2, version))
        play.to_broker(ping(1), least(2, version))
        play.broker(pong(1), answer[:5])
        play.to_client(pong(1))
        for start in range(5, len(answer) - len(pong(3)) - 1, chunk):
            play.broker(answer[start : min(start + chunk, len(answer) - len(pong(3)) - 1)])
            play.silent()
            assert len(play.wire._broker.end.kept) < 100
        play.broker(answer[-len(pong(3)) - 1 : -len(pong(3))])
        play.to_client(response(large(version, 0, partitions=3, throttle_ms=UNTIL_MS), version, 2))
        play.muted_until(UNTIL_MS)
        assert charged(connection) == 0


def test_a_response_that_ends_when_the_throttle_is_over_tells_none() -> None:
    """Its records went away while it began to arrive; its client may ask again at once."""
    answer = fetched(1, 9000)
    with Playbook(connection=throttled(buffer_bytes=SMALL_BYTES)) as play:
        play.client(fetch(1), fetch(2))
        play.to_broker(least(1))
        play.at(UNTIL_MS - 1).broker(answer[:-1])
        play.at(UNTIL_MS).returns(answer[-1:], told=emptied(1, 0))
        play.to_broker(fetch(2))


def test_a_response_to_a_request_for_least_is_delivered_if_the_throttle_is_over() -> None:
    with Playbook(connection=throttled()) as play:
        play.at(UNTIL_MS - 1).client(fetch(1))
        play.to_broker(least(1))
        play.at(UNTIL_MS).returns(fetched(1, 900))
        assert charged(play.connection) == length_of(fetched(1, 900))


# Addresses of brokers (KIP-951)


def with_endpoints(value: FetchResponse, *hosts: str) -> FetchResponse:
    copy = deepcopy(value)
    copy.node_endpoints = [
        FetchResponse.NodeEndpoint(node_id=number, host=host, port=9092)
        for number, host in enumerate(hosts, 1)
    ]
    return copy


@in_one_test
@pytest.mark.parametrize("version", NODE_ENDPOINTS)
@pytest.mark.parametrize("record_bytes", [10, 10_000])
@pytest.mark.parametrize("partitions", [1, 100])
def test_addresses_are_rewritten_in_a_response_whose_records_are_taken_out(
    version: int, record_bytes: int, partitions: int
) -> None:
    """Whether it fits in the buffer with its records, without them only, or not at all."""
    value = with_endpoints(large(version, record_bytes, partitions), "kafka", "k" * 200)
    connection = throttled(buffer_bytes=SMALL_BYTES)
    with Playbook(connection=connection) as play:
        play.at(NOW_MS).client(fetch(1, version))
        play.to_broker(least(1, version))
        play.broker(response(value, version))
        told = without_records(value, version, UNTIL_MS - NOW_MS)
        assert [node.host for node in told.node_endpoints] == ["weir", "weir"]
        play.to_client(response(told, version))
        play.muted_until(UNTIL_MS)
        play.at(UNTIL_MS).relays(ping(2), padded(pong(2), 9000))


def test_records_of_many_topics_are_taken_out_over_several_turns_and_addresses_masked() -> None:
    version = 18
    value = with_endpoints(FetchResponse(), "kafka")
    partition = FetchResponse.PartitionData(records=b"r" * 40)
    topics = [FetchResponse.FetchableTopicResponse(partitions=[partition])] * 12_000
    value.responses = topics
    connection = throttled()
    with Playbook(connection=connection) as play:
        play.at(NOW_MS).client(fetch(1, version))
        play.to_broker(least(1, version))
        answer = response(value, version)
        consumed = in_turns(connection, connection.broker_end, answer)
        assert max(consumed) < len(answer) / 12_000 * SCANNED_ELEMENTS / 2 + 100
        got = b"".join(connection.effects.to_client)
        assert b"kafka" not in got
        told = without_records(value, version, UNTIL_MS - NOW_MS)
        read = body_of(got, FetchResponse, version)
        assert read.throttle_time_ms == told.throttle_time_ms
        assert read.responses == told.responses
        assert read.node_endpoints == []
        connection.effects.to_client.clear()
        play.muted_until(UNTIL_MS)


# Several fetches of a client under way at once


def test_parallel_long_polls_are_delivered_until_their_client_is_over_its_quota() -> None:
    quotas = BrokerQuotas.create(quota_table(fetch=RATE))
    plays = [Playbook(connection=new_connection(quotas=quotas)) for _ in range(3)]
    for play in plays:
        play.client(fetch(1), fetch(2))
        play.to_broker(fetch(1))
    cost = length_of(fetched(1, 9000))
    plays[0].at(400).returns(fetched(1, 9000))
    plays[0].to_broker(fetch(2))
    wait_ms = 2 * cost - 10_050  # in ms, for the first one came 50 ms ago
    plays[1].at(450).returns(fetched(1, 9000), told=fetched(1, 9000, throttle_ms=wait_ms))
    plays[1].muted_until(450 + wait_ms)
    plays[2].at(500).returns(fetched(1, 9000), told=emptied(1, wait_ms - 50))
    plays[2].muted_until(450 + wait_ms)
    plays[0].at(600).returns(fetched(2, 9000), told=emptied(2, wait_ms - 150))
    plays[0].muted_until(450 + wait_ms)
    assert fetch_budget(quotas).charged == 2 * cost
    for play in plays[1:]:
        assert play.tick() == 450 + wait_ms
        play.to_broker(fetch(2))
    for play in plays:
        play.silent()


def test_a_fetch_over_the_quota_is_told_at_most_the_configured_time_again_and_again() -> None:
    """It gets no records until the whole throttle is over."""
    with Playbook(connection=throttled(throttle_ms_max=25_000)) as play:
        for number, now_ms, told_ms in ((1, 0, 25_000), (2, 25_000, 25_000), (3, 50_000, 10_000)):
            play.at(now_ms).client(fetch(number))
            play.to_broker(least(number))
            play.returns(fetched(number, 900), told=emptied(number, told_ms))
            play.muted_until(now_ms + told_ms)
        play.at(UNTIL_MS).relays(fetch(4), fetched(4, 900))


# Who keeps the records


def test_a_replica_gets_its_records_while_its_principal_is_over_the_quota() -> None:
    quotas = BrokerQuotas.create(quota_table(fetch=RATE, entity=Entity(user=DEFAULT)))
    connection = new_connection(quotas=quotas, brokers=frozenset({"kafka"}))
    connection.client.become("kafka")
    budget = quotas.ledger("kafka", "app", 0).fetch
    assert budget is not None
    assert budget.charge(70_000, 0) == UNTIL_MS
    with Playbook(connection=connection) as play:
        asked = request(FetchRequest(replica_id=2, max_bytes=10**6, max_wait_ms=500), 11)
        play.relays(asked, fetched(1, 20_000))
        play.client(fetch(2))
        play.to_broker(least(2))
        play.returns(fetched(2, 20_000), told=emptied(2, UNTIL_MS))
        play.muted_until(UNTIL_MS)


def test_a_fetch_that_cannot_be_read_gets_no_records_either() -> None:
    """It goes to the broker as it came, which refuses it, or reads it otherwise than Weir."""
    asked = framed(fetch(1, 12)[4:20] + b"\xff" * 6)
    with Playbook(connection=throttled()) as play:
        play.forwards(asked)
        assert play.connection.counters.requests_unread == {FETCH_KEY: 1}
        play.returns(fetched(1, 900, version=12), told=emptied(1, UNTIL_MS, version=12))
        play.muted_until(UNTIL_MS)


# What is counted


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("record_bytes", [100, 9000])
def test_usage_counts_the_bytes_that_a_client_without_records_has_got(
    version: int, record_bytes: int
) -> None:
    """And no charged bytes: its quota is not charged, as by a broker."""
    registries = UsageRegistries(trace_share=0.0)
    taken = Taken(registries)
    connection = recorded(throttled(buffer_bytes=SMALL_BYTES), registries)
    wire = Wire(connection)
    value = large(version, record_bytes, partitions=1)
    if version in NODE_ENDPOINTS:
        value = with_endpoints(value, "kafka.example.com")
    wire.exchange(NOW_MS, fetch(1, version), response(value, version))
    connection.end(NOW_MS)
    taken.drain()
    told = response(without_records(value, version, UNTIL_MS - NOW_MS), version)
    assert bytes(wire.to_client) == told
    counted = total(taken.records)
    assert counted.pop("request_time_us") > 0
    assert counted == {
        "requests": 1,
        "bytes_in": len(fetch(1, version)),
        "bytes_out": len(told),
        "consumer_byte_rate ms": UNTIL_MS - NOW_MS,
        "consumer_byte_rate violations": 1,
    }


def test_request_time_is_charged_once_for_a_response_without_records() -> None:
    """For the response that the client gets: the broker was asked for least."""
    own = ApiCost(us=10.0, us_per_response_kb=1.0)
    byte_rate = {(APP, QuotaKey.CONSUMER_BYTE_RATE): float(RATE)}
    table = QuotaTable({(APP, QuotaKey.REQUEST_PERCENTAGE): 100.0, **byte_rate})
    connection = timed(table, costs({"Fetch": own}), buffer_bytes=SMALL_BYTES)
    assert fetch_budget(connection.quotas).charge(70_000, 0) == UNTIL_MS
    answer = fetched(1, 9000)
    with Playbook(connection=connection) as play:
        play.client(fetch(1))
        play.to_broker(least(1))
        play.broker(answer[:2000])
        assert charged_us(connection) == 0
        play.returns(answer[2000:], told=emptied(1, UNTIL_MS))
        play.muted_until(UNTIL_MS)
        assert charged_us(connection) == round(10 + length_of(emptied(1, UNTIL_MS)) / 1000, 3)
        connection.end(5)
        assert charged_us(connection) == round(10 + length_of(emptied(1, UNTIL_MS)) / 1000, 3)


def test_request_time_is_charged_when_a_client_leaves_while_its_records_are_taken_out() -> None:
    byte_rate = {(APP, QuotaKey.CONSUMER_BYTE_RATE): float(RATE)}
    table = QuotaTable({(APP, QuotaKey.REQUEST_PERCENTAGE): 100.0, **byte_rate})
    connection = timed(table, costs({"Fetch": ApiCost(us=10.0)}), buffer_bytes=SMALL_BYTES)
    assert fetch_budget(connection.quotas).charge(70_000, 0) == UNTIL_MS
    wire = Wire(connection)
    wire.exchange(0, fetch(1), fetched(1, 9000)[:5000])
    connection.end(5)
    assert (charged_us(connection), charged(connection)) == (10, 0)


# What cannot be


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("buffer_bytes", [60, SMALL_BYTES])
def test_a_response_that_ends_within_a_field_is_malformed_when_its_records_are_taken_out(
    version: int, buffer_bytes: int
) -> None:
    body = codec(FetchResponse, version).encode(large(version, 100, partitions=1))
    head = b"\0\0\0\x01" + (b"\0" if version >= 12 else b"")
    for length in range(version % 7, len(body), 7):  # neighbouring versions end between these
        connection = throttled(buffer_bytes=buffer_bytes)
        wire = Wire(connection)
        wire.exchange(0, fetch(1, version), framed(head + body[:length]))
        assert connection.effects.close_reason is CloseReason.RESPONSE_MALFORMED, length
        assert (bytes(wire.to_client), charged(connection)) == (b"", 0)
        assert wire.closed(0) is CloseReason.RESPONSE_MALFORMED


def test_a_response_that_is_large_without_its_records_too_is_malformed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would have to be kept: a bound of 200,000 partitions."""
    monkeypatch.setattr(emptied_module, "KEPT_BYTES_MAX", 2000)
    answer = response(large(11, 500, partitions=100), 11)
    with Playbook(connection=throttled(buffer_bytes=SMALL_BYTES)) as play:
        play.client(fetch(1))
        play.to_broker(least(1))
        play.broker(answer[:-1])
        play.violation(CloseReason.RESPONSE_MALFORMED, saying="more than 2000 bytes are left")
