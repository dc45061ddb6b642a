"""Rates of topics on the wire: what each topic is charged and who waits, with topic names and topic ids."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy import wire as wires
from tests.proxy.wire import APP, BUFFER_BYTES, Wire, fetch_a_minute, in_turns
from tests.quotas.changes import put_in_force
from tests.wire import messages
from tests.wire.frames import body_of, request, response
from tests.wire.messages import id_of, identity
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
A, B = Entity(topic="a"), Entity(topic="b")
SMALL_BUFFER = 4096
MANY = {f"n{number}": 0 for number in range(20_000)}
"""Topics without records: more than a turn scans."""
CLUSTER = ClusterState()
for topic in ("a", "b", *MANY):
    CLUSTER.names_by_id.learn(id_of(topic).bytes, topic.encode())


class Versions:
    produce = 9
    fetch = 12


@pytest.fixture(autouse=True, scope="module", params=[(9, 12), (13, 17)], ids=["names", "ids"])
def versions(request: pytest.FixtureRequest) -> Iterator[None]:
    before = Versions.produce, Versions.fetch
    Versions.produce, Versions.fetch = request.param
    yield
    Versions.produce, Versions.fetch = before


def new_connection(
    table: QuotaTable | None = None,
    quotas: BrokerQuotas | None = None,
    buffer_bytes: int = BUFFER_BYTES,
) -> Connection:
    """A connection that knows the names of all topics here."""
    plans = Plans(Counters(), cluster=CLUSTER)
    return wires.new_connection(table, quotas=quotas, buffer_bytes=buffer_bytes, plans=plans)


def produce_to(number: int, acks: int = 1, **sizes: int) -> bytes:
    return messages.produce_to(number, Versions.produce, acks, **sizes)


def produced(number: int, throttle_ms: int = 0) -> bytes:
    return messages.produced(number, throttle_ms, Versions.produce)


def fetched_from(number: int, throttle_ms: int = 0, **sizes: int) -> bytes:
    return messages.fetched_from(number, throttle_ms, Versions.fetch, **sizes)


def fetch(correlation_id: int, *topics: str, least: bool = False) -> bytes:
    """A request; with `least`, as the broker gets it while one of the topics is throttled."""
    asked = FetchRequest(
        topics=[FetchRequest.FetchTopic(**identity(topic, Versions.fetch)) for topic in topics],
        max_wait_ms=0 if least else 500,
        min_bytes=0 if least else 1,
        max_bytes=1 if least else 1000,
    )
    return request(asked, Versions.fetch, correlation_id)


def charged(connection: Connection, key: str, topic: str) -> float:
    assert connection.quotas.topics is not None
    topics = connection.quotas.topics
    rates = topics.produce if key == "produce" else topics.fetch
    budgets = [*rates.budgets(), *rates.budgets(shadow=True)]
    return sum(budget.charged for budget in budgets if budget.tags.topic == topic)


def test_a_producer_over_a_topics_rate_gets_a_throttle_time_and_waits() -> None:
    connection = new_connection(QuotaTable({(A, PRODUCE): 100}))
    wire = Wire(connection)
    wire.exchange(0, produce_to(1, a=1500, b=9000) + produce_to(2, b=1), produced(1))
    assert bytes(wire.to_client) == produced(1, throttle_ms=5000)
    assert bytes(wire.to_broker) == produce_to(1, a=1500, b=9000)
    assert charged(connection, "produce", "a") == 1500
    wire.feed(4999)
    assert wire.waiting_bytes == len(produce_to(2, b=1))
    wire.feed(5000)
    assert bytes(wire.to_broker).endswith(produce_to(2, b=1))


def test_the_longer_wait_of_client_and_topic_counts() -> None:
    table = QuotaTable({(A, PRODUCE): 100, (APP, PRODUCE): 10**9})
    wire = Wire(new_connection(table))
    wire.exchange(0, produce_to(1, a=1500), produced(1))
    assert bytes(wire.to_client) == produced(1, throttle_ms=5000)
    table = QuotaTable({(A, PRODUCE): 10**9, (APP, PRODUCE): 100})
    wire = Wire(new_connection(table))
    frame = produce_to(1, a=1500)
    wire.exchange(0, frame, produced(1))
    assert bytes(wire.to_client) == produced(1, throttle_ms=(len(frame) - 4 - 1000) * 10)


def test_an_acks_0_producer_over_a_topics_rate_is_muted() -> None:
    connection = new_connection(QuotaTable({(A, PRODUCE): 100}))
    wire = Wire(connection)
    wire.feed(0, client=produce_to(1, acks=0, a=2000))
    assert connection.throttled_until_ms == 10_000


def test_a_consumer_over_a_topics_rate_gets_a_throttle_time_and_waits() -> None:
    connection = new_connection(QuotaTable({(A, FETCH): 100}))
    wire = Wire(connection)
    wire.exchange(0, fetch(1, "a", "b") + fetch(2, "b"), fetched_from(1, a=1500, b=500))
    assert bytes(wire.to_client) == fetched_from(1, throttle_ms=5000, a=1500, b=500)
    assert bytes(wire.to_broker) == fetch(1, "a", "b")
    wire.feed(5000)
    assert bytes(wire.to_broker).endswith(fetch(2, "b"))


def test_a_streamed_fetch_response_over_a_topics_rate_is_told_by_the_next_fetch() -> None:
    connection = new_connection(QuotaTable({(A, FETCH): 1000}), buffer_bytes=SMALL_BUFFER)
    wire = Wire(connection)
    answer = fetched_from(1, a=30_000, b=50_000)
    wire.exchange(0, fetch(1, "a"), answer[:-1])
    assert connection.throttled_until_ms == 0
    wire.feed(0, broker=answer[-1:])
    assert bytes(wire.to_client) == answer
    assert charged(connection, "fetch", "a") == 30_000
    wire.to_client.clear()
    wire.exchange(1_000, fetch(2, "b") + fetch(3, "a"), fetched_from(2, b=5))
    wire.exchange(1_000, b"", fetched_from(3, a=5))
    assert bytes(wire.to_client) == fetched_from(2, b=5) + fetched_from(3, throttle_ms=19_000, a=0)
    assert connection.throttled_until_ms == 20_000


def test_a_fetch_of_a_throttled_topic_gets_no_records_on_a_new_connection() -> None:
    table = QuotaTable({(A, FETCH): 100})
    first = new_connection(table)
    Wire(first).exchange(0, fetch(1, "a"), fetched_from(1, a=3000))
    connection = new_connection(quotas=first.quotas)
    wire = Wire(connection)
    wire.exchange(1000, fetch(1, "b"), fetched_from(1, b=9000))
    assert bytes(wire.to_broker) == fetch(1, "b")
    assert bytes(wire.to_client) == fetched_from(1, b=9000)
    wire.to_client.clear()
    wire.exchange(2000, fetch(2, "a", "b") + fetch(3, "a"), fetched_from(2, a=400, b=500))
    assert bytes(wire.to_broker) == fetch(1, "b") + fetch(2, "a", "b", least=True)
    assert bytes(wire.to_client) == fetched_from(2, throttle_ms=18_000, a=0, b=0)
    assert (charged(connection, "fetch", "a"), connection.throttled_until_ms) == (3000, 20_000)
    wire.feed(19_999)
    assert wire.waiting_bytes == len(fetch(3, "a"))
    wire.feed(20_000)
    assert bytes(wire.to_broker).endswith(fetch(3, "a"))


@pytest.mark.parametrize("size", [900, 5000])  # the second is charged when its head was forwarded
def test_connections_that_fetch_a_topic_get_equal_shares_though_some_are_always_faster(size: int) -> None:
    quotas = new_connection(QuotaTable({(A, FETCH): 10 * size})).quotas
    wires = [Wire(new_connection(quotas=quotas, buffer_bytes=SMALL_BUFFER)) for _ in range(10)]
    got = fetch_a_minute(wires, fetch(1, "a"), fetched_from(1, a=size))
    assert min(got) > 0.95 * sum(got) / len(got)
    assert sum(got) == pytest.approx(600, rel=0.02)


def test_shadow_topic_rates_throttle_no_client() -> None:
    connection = new_connection(QuotaTable(None, {(A, FETCH): 100, (A, PRODUCE): 100}))
    wire = Wire(connection)
    wire.exchange(0, produce_to(2, a=9000), produced(2))
    wire.exchange(0, fetch(3, "a"), fetched_from(3, a=9000))
    assert bytes(wire.to_client) == produced(2) + fetched_from(3, a=9000)
    assert (charged(connection, "produce", "a"), charged(connection, "fetch", "a")) == (9000, 9000)


def test_no_rate_of_a_topic_changes_the_offered_versions() -> None:
    connection = new_connection(QuotaTable({(A, FETCH): 100}))
    wire = Wire(connection)
    told = ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=0, min_version=3, max_version=13),
            ApiVersionsResponse.ApiVersion(api_key=1, min_version=4, max_version=17),
            ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=4),
        ]
    )

    def offered(correlation_id: int) -> dict[int, int]:
        wire.to_client.clear()
        wire.exchange(0, request(ApiVersionsRequest(), 3, correlation_id), response(told, 3, correlation_id))
        answer = body_of(bytes(wire.to_client), ApiVersionsResponse, 3)
        return {entry.api_key: entry.max_version for entry in answer.api_keys}

    assert offered(1) == {0: 13, 1: 17, 3: 4}
    put_in_force(connection.quotas, QuotaTable())
    assert offered(2) == {0: 13, 1: 17, 3: 4}


def test_the_first_rate_of_a_topic_holds_for_open_connections() -> None:
    connection = new_connection(QuotaTable({(APP, PRODUCE): 10**9}))
    wire = Wire(connection)
    for number in range(3):
        wire.exchange(0, produce_to(number, a=1000), produced(number))
    put_in_force(connection.quotas, QuotaTable({(APP, PRODUCE): 10**9, (A, PRODUCE): 100}))
    wire.to_client.clear()
    wire.exchange(0, produce_to(9, a=1100), produced(9))
    assert bytes(wire.to_client) == produced(9, throttle_ms=1000)


def test_a_malformed_produce_request_passes_uncharged_for_the_broker_to_refuse() -> None:
    connection = new_connection(QuotaTable({(A, PRODUCE): 100}))
    frame = bytearray(messages.produce_to(1, a=1000))
    position = frame.index(b"\x02a") + 1
    frame[position - 1] = 0x00  # the topic's name is null
    wire = Wire(connection)
    wire.feed(0, client=bytes(frame))
    assert connection.effects.close_reason is None
    assert bytes(wire.to_broker) == frame
    assert connection.counters.requests_unread == {ApiKey.PRODUCE: 1}
    assert charged(connection, "produce", "a") == 0


def share_fetch(number: int, *topics: str, most: int = 500) -> bytes:
    asked = [ShareFetchRequest.FetchTopic(topic_id=id_of(topic)) for topic in topics]
    return request(ShareFetchRequest(topics=asked, max_bytes=1000, max_records=most), 1, number)


def share_fetched(number: int, throttle_ms: int = 0, **sizes: int) -> bytes:
    data, topic = ShareFetchResponse.PartitionData, ShareFetchResponse.ShareFetchableTopicResponse
    topics = [topic(topic_id=id_of(name), partitions=[data(records=b"r" * n)]) for name, n in sizes.items()]
    return response(ShareFetchResponse(throttle_time_ms=throttle_ms, responses=topics), 1, number)


def test_a_share_consumer_over_a_topics_rate_waits_and_then_acquires_no_records() -> None:
    connection = new_connection(QuotaTable({(A, FETCH): 1000}))
    wire = Wire(connection)
    wire.exchange(0, share_fetch(1, "a", "b") + share_fetch(2), share_fetched(1, a=18_000, b=500))
    assert bytes(wire.to_client) == share_fetched(1, throttle_ms=5000, a=18_000, b=500)
    assert charged(connection, "fetch", "a") == 18_000
    assert bytes(wire.to_broker) == share_fetch(1, "a", "b")
    wire.to_client.clear()
    wire.exchange(5000, b"", share_fetched(2))
    assert bytes(wire.to_broker) == share_fetch(1, "a", "b") + share_fetch(2, most=0)
    assert bytes(wire.to_client) == share_fetched(2, throttle_ms=3000)
    wire.feed(8000, client=share_fetch(3))
    assert bytes(wire.to_broker).endswith(share_fetch(3))


def test_a_share_fetch_on_another_connection_acquires_no_records_of_a_topic_over_its_rate() -> None:
    first = new_connection(QuotaTable({(A, FETCH): 100}))
    Wire(first).exchange(0, share_fetch(1, "a"), share_fetched(1, a=3000))
    wire = Wire(new_connection(quotas=first.quotas))
    wire.exchange(0, share_fetch(1, "b"), share_fetched(1, b=9000))
    wire.feed(1000, client=share_fetch(2, "a", "b"))
    assert bytes(wire.to_broker) == share_fetch(1, "b") + share_fetch(2, "a", "b", most=0)


def test_a_produce_request_of_many_topics_is_forwarded_over_several_turns_and_charged_once() -> None:
    connection = new_connection(QuotaTable({(A, PRODUCE): 10**9}))
    frame = produce_to(1, **MANY, a=1500)
    consumed = in_turns(connection, connection.client_end, frame)
    assert len(consumed) > 5
    assert max(consumed) < len(frame) / 5
    assert b"".join(connection.effects.to_broker) == frame
    assert charged(connection, "produce", "a") == 1500
    assert len(connection.in_flight) == 1


def test_many_produce_requests_share_the_topics_that_a_turn_scans() -> None:
    connection = new_connection(QuotaTable({(A, PRODUCE): 10**9}))
    some = dict(list(MANY.items())[:1000])
    frames = b"".join(produce_to(number, **some, a=10) for number in range(20))
    consumed = in_turns(connection, connection.client_end, frames)
    assert max(consumed) < len(frames) / 4
    assert b"".join(connection.effects.to_broker) == frames
    assert (charged(connection, "produce", "a"), connection.counters.throttles) == (200, 0)


@pytest.mark.parametrize("buffer_bytes", [SMALL_BUFFER, 2**20])
def test_a_fetch_response_of_many_topics_is_counted_over_several_turns_and_charged_once(
    buffer_bytes: int,
) -> None:
    connection = new_connection(QuotaTable({(A, FETCH): 1000}), buffer_bytes=buffer_bytes)
    Wire(connection).feed(0, client=fetch(1, "a"))
    answer = fetched_from(1, **MANY, a=30_000)
    consumed = in_turns(connection, connection.broker_end, answer)
    assert len(consumed) > 5
    assert b"".join(connection.effects.to_client) == answer
    assert connection.effects.close_reason is None
    assert charged(connection, "fetch", "a") == 30_000
    assert not connection.in_flight


def test_a_fetch_of_too_many_topics_to_read_counts_as_one_of_any_topic() -> None:
    connection = new_connection(QuotaTable({(A, FETCH): 1000}))
    wire, asked = Wire(connection), fetch(1, *(f"n{number}" for number in range(16_000)))
    wire.exchange(0, asked, fetched_from(1, a=30_000))
    assert wire.to_broker == asked
    assert charged(connection, "fetch", "a") == 30_000
    other = Wire(new_connection(quotas=connection.quotas))
    other.feed(10_000, client=asked)
    assert len(other.to_broker) == len(asked)
    assert other.to_broker != asked, "a topic is over its rate: it asks for least"
