"""Produce and fetch quotas on the wire: who is charged what and when, what is reported, who waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matrix import in_one_test
from tests.protocol.generate import sample
from tests.proxy.playbook import Playbook
from tests.proxy.wire import APP, Wire, fetch_a_minute, new_connection, quota_table
from tests.quotas.changes import put_in_force
from tests.wire.frames import framed, header, padded, request, response, unknown_request
from tests.wire.messages import emptied, fetch, fetched, least, length_of, ping, pong, produce, produced
from weir.protocol.api import ApiKey, versions
from weir.protocol.messages import (
    FetchRequest,
    ProduceRequest,
    ProduceResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from weir.protocol.scanning.field_scanner import Bytes
from weir.protocol.values import schema_of
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.quotas import DEFAULT, Budget, Entity, QuotaKey, QuotaTable

PRODUCE_VERSIONS = list(schema_of(ProduceRequest).versions)
FETCH_VERSIONS = list(schema_of(FetchRequest).versions)
SHARE_FETCH_VERSIONS = list(schema_of(ShareFetchRequest).versions)
ODD_TAGS = b"\x02\x05\x03abc\x81\x01\x00"
"""Two tagged fields in a request's header that nobody knows."""


def the_budget(connection: Connection, key: str) -> Budget:
    (budget,) = getattr(connection.quotas, key)
    return budget  # type: ignore[no-any-return]  # of a ClientQuotas


# Produce


def test_kafkas_own_example_of_pipelined_produce_requests() -> None:
    """Measured on a broker: three requests of 6102 bytes at 1000 bytes/s have throttles 0, 2204, 8102."""
    with Playbook(quota_table(produce=1000)) as play:
        play.client(produce(1, 6102), produce(2, 6102), produce(3, 6102))
        play.to_broker(produce(1, 6102), produce(2, 6102))
        play.muted_until(2204)
        play.broker(produced(1), produced(2))
        play.to_client(produced(1), produced(2, throttle_ms=2204))
        play.at(2203)
        play.silent()
        play.at(2204)
        play.to_broker(produce(3, 6102))
        play.muted_until(2204 + 8102)
        play.returns(produced(3), told=produced(3, throttle_ms=8102))


@in_one_test
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("odd", [False, True], ids=["plain", "odd"])
def test_weir_expects_a_produce_response_unless_acks_is_0(version: int, acks: int, odd: bool) -> None:
    """With acks=0, the next response is the next request's; transactional ids and tags do not matter."""
    message = sample(ProduceRequest, version) if odd else ProduceRequest()
    asked = request(
        msgspec.structs.replace(message, acks=acks), version, 1, tags=ODD_TAGS if odd else b"\x00"
    )
    for table in (QuotaTable(), quota_table(produce=1e9)):
        with Playbook(table) as play:
            play.forwards(asked, ping(2))
            answers = ([] if acks == 0 else [produced(1, 5, version)]) + [pong(2)]
            play.returns(*answers)
            assert play.connection.idle
            assert [b.charged for b in play.connection.quotas.produce] == [length_of(asked)] * len(table)


@in_one_test
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("brokers_ms", [0, 2105, 2107])
def test_the_larger_throttle_time_is_reported_in_every_version(version: int, brokers_ms: int) -> None:
    answer = sample(ProduceResponse, version)
    endpointless = msgspec.structs.replace(answer, node_endpoints=[], unknown_tagged_fields=())

    def answered(throttle_ms: int) -> bytes:
        return response(
            msgspec.structs.replace(endpointless, throttle_time_ms=throttle_ms if version else 0), version
        )

    with Playbook(quota_table(produce=1000)) as play:
        play.forwards(produce(1, 12_106, version))
        play.muted_until(2106)
        play.returns(answered(brokers_ms), told=answered(max(brokers_ms, 2106)))


def test_a_produce_response_longer_than_the_buffer_is_not_kept_for_its_throttle_time() -> None:
    """The field is behind the partitions, whose number the client chooses. The client waits untold."""
    partitions = [ProduceResponse.PartitionProduceResponse(index=number) for number in range(100)]
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=partitions)
    long = response(ProduceResponse(responses=[topic]), 7)
    with Playbook(quota_table(produce=1000), buffer_bytes=1000) as play:
        play.forwards(produce())
        play.muted_until(2106)
        play.wire.feed(0, broker=long[:999])
        assert not play.wire.to_client
        play.wire.feed(0, broker=long[999:1300])
        assert play.wire.to_client == long[:1300]
        play.wire.feed(0, broker=long[1300:])
        play.to_client(long)


@pytest.mark.parametrize("version", [7, 9])
def test_a_produce_response_in_many_parts_is_searched_once_for_its_throttle_time(version: int) -> None:
    topic = ProduceResponse.TopicProduceResponse(name="t")
    long = response(ProduceResponse(responses=[topic] * 1000), version)
    told = response(ProduceResponse(responses=[topic] * 1000, throttle_time_ms=2106), version)
    searches = 0
    with Playbook(quota_table(produce=1000)) as play:
        plan = play.connection.plans.make(ApiKey.PRODUCE, version)
        offset = plan.throttle
        assert offset is not None

        def counted(data: Bytes, body: int, end: int, complete: bool) -> int:
            nonlocal searches
            searches += 1
            return offset.locate(data, body, end, complete)

        plan.throttle = replace(offset, locate=counted)
        play.forwards(produce(1, 12_106, version))
        play.muted_until(2106)
        for start in range(0, len(long), 100):
            play.wire.feed(0, broker=long[start : start + 100])
        play.to_client(told)
    assert searches == 1


@pytest.mark.parametrize(("now_ms", "told_ms"), [(2000, 106), (2106, 0), (3000, 0)])
def test_the_reported_throttle_time_is_the_remaining_wait(now_ms: int, told_ms: int) -> None:
    with Playbook(quota_table(produce=1000)) as play:
        play.forwards(produce(1, 12_106))
        play.muted_until(2106)
        play.at(now_ms).returns(produced(1), told=produced(1, throttle_ms=told_ms))


# Fetch


@in_one_test
@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("brokers_ms", [0, 10**6])
def test_fetch_is_charged_its_response_length_and_holds_later_requests(version: int, brokers_ms: int) -> None:
    """A broker counts the body and 4 bytes: the length up to v11, one less with a flexible header."""
    answer = fetched(1, 20_000, brokers_ms if version else 0, version)
    cost = length_of(answer) - (version >= 12)
    asked = fetch(1, version)
    with Playbook(quota_table(fetch=1000)) as play:
        play.client(asked, ping(2))
        play.to_broker(asked)
        play.at(40).broker(answer)
        wait_ms = cost - 10_000  # cost / quota - window, in ms
        play.to_client(fetched(1, 20_000, max(wait_ms, brokers_ms) if version else 0, version))
        play.muted_until(40 + wait_ms)
        assert the_budget(play.connection, "fetch").charged == cost
        play.at(40 + wait_ms)
        play.to_broker(ping(2))


@in_one_test
@pytest.mark.parametrize("version", [v for v in FETCH_VERSIONS if v >= 3])
@pytest.mark.parametrize("asked", [0, 9999, 10_000, 10_001, 2**31 - 1])
def test_fetch_max_bytes_is_capped_and_never_raised(version: int, asked: int) -> None:
    message = msgspec.structs.replace(sample(FetchRequest, version), max_bytes=asked)
    with Playbook(quota_table(fetch=1000)) as play:
        play.client(request(message, version, tags=ODD_TAGS))
        capped = msgspec.structs.replace(message, max_bytes=min(asked, 10_000))
        play.to_broker(request(capped, version, tags=ODD_TAGS))


@pytest.mark.parametrize("version", SHARE_FETCH_VERSIONS)
def test_share_fetches_are_charged_and_capped_by_the_fetch_quota(version: int) -> None:
    message = msgspec.structs.replace(sample(ShareFetchRequest, version), max_bytes=50_000)
    empty = msgspec.structs.replace(sample(ShareFetchResponse, version), node_endpoints=[])
    with Playbook(quota_table(fetch=1)) as play:
        play.client(request(message, version), ping(2))
        play.to_broker(request(msgspec.structs.replace(message, max_bytes=10), version))
        answer = response(msgspec.structs.replace(empty, throttle_time_ms=0), version)
        wait_ms = 5000  # of (length - 1) * 1000 - 10,000: acknowledgements must come in time
        play.returns(answer, told=response(msgspec.structs.replace(empty, throttle_time_ms=wait_ms), version))
        play.muted_until(wait_ms)


# One client, several connections


def test_a_fetch_on_a_new_connection_of_a_throttled_client_gets_no_records() -> None:
    """It is answered at once, and told to wait; the requests behind it wait."""
    answer = fetched(1, 20_000)
    wait_ms = length_of(answer) - 10_000
    first = new_connection(quota_table(fetch=1000))
    second = new_connection(quotas=first.quotas)
    with Playbook(connection=first) as play:
        play.relays(fetch(1), answer, told=fetched(1, 20_000, throttle_ms=wait_ms))
        play.muted_until(wait_ms)
    with Playbook(connection=second) as play:
        play.at(5).client(ping(1), fetch(2), ping(3), fetch(4))
        play.to_broker(ping(1), least(2))
        play.broker(pong(1), fetched(2, 900))
        play.to_client(pong(1), emptied(2, throttle_ms=wait_ms - 5))
        play.muted_until(wait_ms)
        assert play.tick() == wait_ms
        play.to_broker(ping(3), fetch(4))
        play.at(12_000).returns(pong(3), fetched(4, 900))
        assert the_budget(first, "fetch").charged == length_of(answer) + length_of(fetched(4, 900))


def test_a_response_without_records_tells_a_throttle_that_another_connection_has_extended() -> None:
    first = new_connection(quota_table(fetch=1000))
    second = new_connection(quotas=first.quotas)
    budget = first.quotas.ledger("ANONYMOUS", "app", 0).fetch
    assert budget is not None
    assert budget.charge(11_000, 0) == 1000
    with Playbook(connection=second) as play:
        play.client(fetch(1, max_bytes=50_000), fetch(2, max_bytes=50_000))
        play.to_broker(least(1))
        assert budget.charge(1000, 0) == 2000
        play.at(100).returns(fetched(1, 900), told=emptied(1, throttle_ms=1900))
        play.muted_until(2000)
        play.at(1999)
        play.silent()
        play.at(2000)
        play.to_broker(fetch(2, max_bytes=10_000))


def test_connections_of_a_client_get_equal_shares_though_some_are_always_faster() -> None:
    """At brokers 3.9.1 the fastest got 1.54 of an equal share and the slowest 0.47 of it, in a fairness
    (Jain) of 0.896.
    """
    quotas = new_connection(quota_table(fetch=9700)).quotas
    got = fetch_a_minute([Wire(new_connection(quotas=quotas)) for _ in range(10)], fetch(1), fetched(1, 900))
    assert min(got) > 0.95 * sum(got) / len(got)
    assert sum(got) == pytest.approx(600, rel=0.02)


def test_a_fetch_request_of_a_throttled_client_asks_for_least_for_any_cut() -> None:
    asked, expected = fetch(1), least(1)
    for cut in range(1, len(asked)):
        connection = new_connection(quota_table(fetch=1000))
        budget = connection.quotas.ledger("ANONYMOUS", "app", 0).fetch
        assert budget is not None
        assert budget.charge(11_000, 0) == 1000
        wire = Wire(connection)
        wire.feed(0, client=asked[:cut])
        assert expected.startswith(bytes(wire.to_broker))
        wire.feed(0, client=asked[cut:])
        assert (bytes(wire.to_broker), connection.throttled_until_ms) == (expected, 0), cut


# Whose budget


def asked_by(client_id: bytes | None, length: int = 1000) -> bytes:
    return padded(request(ProduceRequest(acks=0), 7, client_id=client_id), length)


def charged(connection: Connection) -> dict[str, float]:
    return {budget.tags.client_id: budget.charged for budget in connection.quotas.produce}


def test_the_cached_client_id_never_comes_from_bytes_of_an_older_frame() -> None:
    """A cut frame lies over an older one; what is left of that must not complete it."""
    short, long = asked_by(b"app"), asked_by(b"apple")
    with Playbook(QuotaTable({(APP, QuotaKey.PRODUCER_BYTE_RATE): 1e9})) as play:
        play.forwards(short)
        for cut in range(12, 24):
            play.client(long[:cut])
            play.wire.to_broker.clear()
            play.client(long[cut:])
            play.wire.to_broker.clear()
        assert charged(play.connection) == {"app": 1000}


def test_client_ids_that_are_not_utf_8_are_charged_as_by_a_broker() -> None:
    """Java's decoder puts U+FFFD in place of what it cannot decode; a name that is written like Python's
    escape of it is another client.
    """
    table = quota_table(produce=1e9, entity=Entity(client_id=DEFAULT))
    with Playbook(table) as play:
        for client_id in (b"\xff", b"\\xff", b"\xfe"):
            play.forwards(asked_by(client_id))
        assert charged(play.connection) == {"\ufffd": 2000, "\\xff": 1000}


@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from([b"a", b"ab", b"", None]),
            st.sampled_from([0, 1, -1]),
            st.sampled_from([None, "t", "a"]),
            st.sampled_from([2, 3, 9]),
        ),
        max_size=12,
    ),
    cut=st.integers(1, 90),
    change=st.integers(0, 12),
)
def test_the_parse_cache_gives_the_results_of_a_fresh_parse(
    asked: list[tuple[bytes | None, int, str | None, int]], cut: int, change: int
) -> None:
    """Requests alike and not alike, cut anywhere, quotas changed in between: as if each came alone."""
    default = Entity(client_id=DEFAULT)
    connection = new_connection(quota_table(produce=1e9, entity=default))
    wire, expected, answered = Wire(connection), Counter[str](), []
    for number, (client_id, acks, transactional_id, version) in enumerate(asked):
        if number == change:
            put_in_force(connection.quotas, quota_table(produce=1e9, entity=Entity(client_id="a")))
        message = ProduceRequest(acks=acks, transactional_id=transactional_id if version > 2 else None)
        frame = request(message, version, number, client_id=client_id)
        wire.feed(0, frame[:cut])
        wire.feed(0, frame[cut:])
        name = (client_id or b"").decode()
        if name and (number < change or name == "a"):
            expected[name] += length_of(frame)
        if acks:
            answered.append(number)
    assert {name: spent for name, spent in charged(connection).items() if spent} == expected
    assert [request.correlation_id for request in connection.in_flight] == answered


def test_a_cached_fetch_is_capped_by_a_lowered_quota() -> None:
    with Playbook(quota_table(fetch=1000)) as play:
        play.relays(fetch(1, max_bytes=10_000), fetched(1, 10))
        assert play.connection.client.parse_cache.plan is not None
        put_in_force(play.connection.quotas, quota_table(fetch=100))
        play.client(fetch(2, max_bytes=10_000))
        play.to_broker(fetch(2, max_bytes=1000))


def test_a_cached_fetch_asks_for_least_while_its_client_is_throttled() -> None:
    with Playbook(quota_table(fetch=1000)) as play:
        play.relays(fetch(1), fetched(1, 10))
        assert play.connection.client.parse_cache.plan is not None
        the_budget(play.connection, "fetch").charge(11_000, 0)
        until_ms = the_budget(play.connection, "fetch").throttled_until_ms
        play.client(fetch(2), fetch(3))
        play.to_broker(least(2))
        play.returns(fetched(2, 10), told=emptied(2, until_ms))
        play.muted_until(until_ms)
        play.at(until_ms)
        play.to_broker(fetch(3))


def test_a_long_client_id_is_charged_and_not_cached() -> None:
    long = b"c" * 30_000
    table = quota_table(produce=1e9, entity=Entity(client_id=long.decode()))
    with Playbook(table) as play:
        for client_id in (long, b"other", long):
            asked = request(ProduceRequest(acks=1), 7, client_id=client_id)
            play.forwards(asked)
        assert the_budget(play.connection, "produce").charged == 2 * length_of(asked)
        assert len(play.connection.client._cached_client_id) < 1000


# What cannot be


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (framed(header(0, 7, 1, b"app", tags=None)), CloseReason.REQUEST_MALFORMED),
        (framed(header(0, 7, 1, None, tags=None)[:9]), CloseReason.REQUEST_MALFORMED),
        (framed(header(0, 9, 1, b"app", tags=b"\xff" * 9)), CloseReason.REQUEST_MALFORMED),
        (b"\0\0\0\x07" + bytes(20), CloseReason.REQUEST_TOO_SHORT),
        (b"\x7f\xff\xff\xff" + bytes(20), CloseReason.REQUEST_TOO_LARGE),
        (b"\xff\xff\xff\xff" + bytes(20), CloseReason.REQUEST_TOO_SHORT),
        (b"\x16\x03\x01\x02\x00\x01" + bytes(20), CloseReason.TLS_ON_PLAIN_PORT),
    ],
)
def test_malformed_requests_close_the_connection_with_a_reason(sent: bytes, reason: CloseReason) -> None:
    with Playbook(quota_table(produce=1000)) as play:
        play.client(ping(1), sent, ping(2))
        play.to_broker(ping(1))
        play.violation(reason)
        play.client(ping(3))
        play.silent()


@pytest.mark.parametrize("sent", [b"GET /metrics HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_http_at_the_kafka_port_is_named_in_the_log(sent: bytes) -> None:
    with Playbook(quota_table(produce=1000)) as play:
        play.client(sent)
        play.violation(
            CloseReason.REQUEST_TOO_LARGE, saying="an HTTP client; is it meant for the admin endpoint?"
        )


NEVER_UNREAD: Final = (
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.METADATA),
    *(ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS),
    *(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
)


@pytest.mark.parametrize("api_key", NEVER_UNREAD, ids=lambda key: key.name)
def test_unknown_versions_of_apis_that_are_read_close_the_connection(api_key: ApiKey) -> None:
    newest = max(versions(api_key) or ())
    with Playbook(quota_table(produce=1000)) as play:
        play.client(ping(1), unknown_request(api_key, newest + 1), ping(2))
        play.to_broker(ping(1))
        play.violation(CloseReason.REQUEST_VERSION_UNKNOWN, saying=f"{api_key.name} v{newest + 1}")


def test_a_request_whose_first_fields_fill_the_buffer_is_refused() -> None:
    with Playbook(quota_table(produce=1000), buffer_bytes=500) as play:
        play.client(request(ProduceRequest(transactional_id="t" * 1000), 7))
        play.violation(CloseReason.REQUEST_MALFORMED, saying="fill the buffer")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (pong(2), CloseReason.RESPONSE_UNEXPECTED),
        (b"\0\0\0\x03\0\0\0\x01", CloseReason.RESPONSE_LENGTH_WRONG),
        (b"\xff\xff\xff\xff\0\0\0\x01", CloseReason.RESPONSE_LENGTH_WRONG),
        (framed(b"\0\0\0\x01" + b"\xff" * 9), CloseReason.RESPONSE_MALFORMED),
        (framed(b"\0\0\0\x01"), CloseReason.RESPONSE_MALFORMED),
    ],
)
def test_malformed_responses_close_the_connection_with_a_reason(sent: bytes, reason: CloseReason) -> None:
    with Playbook(quota_table(fetch=1000)) as play:
        play.forwards(fetch(1, 12))
        play.broker(sent)
        play.violation(reason)
        play.broker(fetched(1, 10, version=12))
        play.silent()
