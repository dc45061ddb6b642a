"""Relays on loopback sockets: short sends, closing from either side, mutes; the clock is the test's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proxy.rigs import PAIRS, Rig
from tests.proxy.wire import quota_table
from tests.wire.frames import body_of, padded, request, response
from tests.wire.messages import ping, pong, produce, produced
from weir.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.net.latency import SAMPLE
from weir.proxy.net.poll import READ
from weir.proxy.net.reactor import BUFFER_BYTES


@pytest.mark.parametrize("pair", PAIRS)
def test_a_relay_passes_frames_larger_than_every_buffer_both_ways(
    new_rig: Callable[..., Rig], pair: str
) -> None:
    rig = new_rig(pair=PAIRS[pair])
    asked, answered = padded(ping()), padded(pong())
    assert rig.pass_on(asked + ping(2), rig.client, rig.broker) == asked + ping(2)
    assert rig.pass_on(answered + pong(2), rig.broker, rig.client) == answered + pong(2)


def test_a_rewritten_response_may_be_larger_than_the_buffer(new_rig: Callable[..., Rig]) -> None:
    """The coordinators of several keys are kept until all of them are there."""

    def answer(host: str, port: int) -> bytes:
        found = FindCoordinatorResponse.Coordinator(key="k" * 30_000, node_id=1, host=host, port=port)
        return response(FindCoordinatorResponse(coordinators=[found] * 30), 4)

    rig = new_rig()
    asked = request(FindCoordinatorRequest(coordinator_keys=["k"]), 4)
    assert rig.pass_on(asked, rig.client, rig.broker) == asked
    sent = answer("kafka", 9092)
    while sent:
        sent = rig.send(rig.broker, sent)
        rig.turn()
    rig.expect(rig.client, answer("weir", 19094))


def test_of_a_large_share_fetch_response_hardly_more_than_the_buffer_is_kept(
    new_rig: Callable[..., Rig],
) -> None:
    records = ShareFetchResponse.PartitionData(records=b"r" * (9 * BUFFER_BYTES))
    topic = ShareFetchResponse.ShareFetchableTopicResponse(partitions=[records])
    node = ShareFetchResponse.NodeEndpoint(node_id=1, host="kafka", port=9092)
    rig = new_rig()
    rig.pass_on(request(ShareFetchRequest(), 1), rig.client, rig.broker)
    sent = answer = response(ShareFetchResponse(responses=[topic], node_endpoints=[node]), 1)
    received, kept = bytearray(), 0
    while sent:
        sent = rig.send(rig.broker, sent)
        rig.turn()
        kept = max(kept, rig.relay.held_bytes)
        received += rig.take(rig.client)
    rig.turn(3)
    received += rig.take(rig.client)
    assert kept <= 2 * BUFFER_BYTES
    assert len(received) == len(answer)
    told = body_of(bytes(received), ShareFetchResponse, 1)
    assert told.responses == [topic]
    assert told.node_endpoints == []


def test_the_latency_of_a_sample_of_requests_is_split_between_weir_and_the_broker(
    new_rig: Callable[..., Rig],
) -> None:
    """The first request of a connection, and then one of 16."""
    rig = new_rig()
    rig.clock.now_ms = 1000
    latencies = rig.reactor.latencies
    for number in range(1 + SAMPLE):
        rig.pass_on(ping(number), rig.client, rig.broker)
        rig.clock.now_ms += 7
        rig.pass_on(pong(number), rig.broker, rig.client)
    assert sum(latencies.forward.within) == 2
    others = latencies.answers["others"]
    assert (sum(others.within), others.sum_us) == (2, 14_000)
    assert others.within[others.bounds_us.index(10_000)] == 2


def test_an_answer_counts_for_the_api_of_the_measured_request_whatever_follows_it(
    new_rig: Callable[..., Rig],
) -> None:
    rig = new_rig()
    rig.clock.now_ms = 1000
    rig.pass_on(produce(0, length=300), rig.client, rig.broker)
    for number in range(1, 1 + SAMPLE):
        rig.pass_on(ping(number), rig.client, rig.broker)
    rig.pass_on(produced(0), rig.broker, rig.client)
    assert sum(rig.reactor.latencies.answers["Produce"].within) == 1


# Who does not read


def test_a_client_that_never_reads_stops_reading_from_its_broker(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig()
    rig.pass_on(b"".join(ping(i) for i in range(10)), rig.client, rig.broker)
    answers = b"".join(padded(pong(i)) for i in range(10))
    rest = answers
    for _ in range(1000):
        rest = rig.send(rig.broker, rest)
        rig.turn()
    taken = len(answers) - len(rest)
    assert taken < 2 * BUFFER_BYTES
    rig.turn()
    assert rig.send(rig.broker, rest) == rest, "the broker's socket is full and stays so"
    assert len(rig.relay._client.unsent) <= BUFFER_BYTES
    assert rig.reactor.timeout_s() is None
    received = bytearray(rig.take(rig.client))
    received += rig.pass_on(rest, rig.broker, rig.client)
    assert received == answers


def test_a_broker_that_does_not_read_stops_the_client(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig()
    asked = b"".join(padded(ping(i)) for i in range(3))
    rest = asked
    for _ in range(1000):
        rest = rig.send(rig.client, rest)
        rig.turn()
    assert len(asked) - len(rest) < 2 * BUFFER_BYTES
    received = bytearray(rig.take(rig.broker))
    received += rig.pass_on(rest, rig.client, rig.broker)
    assert received == asked


def test_a_broker_that_does_not_read_can_still_answer(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig()
    assert rig.pass_on(ping(1), rig.client, rig.broker) == ping(1)
    rest = padded(ping(2))
    for _ in range(200):
        rest = rig.send(rig.client, rest)
        rig.turn()
    assert rig.pass_on(pong(1), rig.broker, rig.client) == pong(1)


# Mutes and timers


def test_a_muted_client_is_not_read_until_its_deadline(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(quota_table(produce=1000))
    assert rig.pass_on(produce(), rig.client, rig.broker) == produce()
    assert rig.pass_on(produced(), rig.broker, rig.client) == produced(throttle_ms=2106)
    assert rig.reactor.timeout_s() == 2.106
    rig.send(rig.client, ping(2))
    rig.until(2105)
    assert rig.take(rig.broker) == b""
    assert not rig.relay._client.interest & READ
    rig.until(2106)
    assert rig.take(rig.broker) == ping(2)
    assert rig.reactor.timeout_s() is None


def test_closing_a_relay_cancels_its_timer(new_rig: Callable[..., Rig]) -> None:
    rig = new_rig(quota_table(produce=1000))
    rig.pass_on(produce(), rig.client, rig.broker)
    rig.relay.close(CloseReason.STOPPED)
    assert rig.reactor.timeout_s() is None
    rig.until(5000)
    assert rig.reason is CloseReason.STOPPED


# Many
