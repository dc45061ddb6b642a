"""Fetches that go on with a fetch session name no topics: a rate holds them all the same (KIP-227)."""

from __future__ import annotations

import pytest

from protocol.messages import FetchRequest, FetchResponse
from proxy.reasons import CloseReason
from quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from tests.matrix import in_one_test
from tests.proxy.frames import request, response
from tests.proxy.rigs import Rig, tcp_pair
from tests.proxy.wire import Wire, new_connection

A, B = Entity(topic="a"), Entity(topic="b")
RATES = QuotaTable({(topic, QuotaKey.CONSUMER_BYTE_RATE): 1000.0 for topic in (A, B)})
OURS, THEIRS = 7, 8
"""Ids of sessions."""


def fetch(*topics: str, session_id: int = 0, epoch: int = 0, version: int = 12) -> bytes:
    asked = [FetchRequest.FetchTopic(topic=topic) for topic in topics]
    return request(FetchRequest(topics=asked, session_id=session_id, session_epoch=epoch), version)


def fetched(session_id: int, version: int = 12, **sizes: int) -> bytes:
    topics = [
        FetchResponse.FetchableTopicResponse(
            topic=name, partitions=[FetchResponse.PartitionData(records=b"r" * size)]
        )
        for name, size in sizes.items()
    ]
    return response(FetchResponse(responses=topics, session_id=session_id), version)


def connection(quotas: BrokerQuotas) -> Wire:
    return Wire(new_connection(quotas=quotas))


def passes(wire: Wire, asked: bytes, now_ms: int, answer: bytes = b"") -> bool:
    """Whether a fetch goes to the broker at once; it is then answered."""
    wire.to_broker.clear()
    wire.feed(now_ms, client=asked)
    if not wire.to_broker:
        return False
    assert bytes(wire.to_broker) == asked
    wire.feed(now_ms, broker=answer or fetched(OURS))
    return True


def exceed(quotas: BrokerQuotas, topic: str, seconds: int) -> None:
    """Somebody fetches so much of a topic at 0 that its rate is exceeded for so long."""
    answer = fetched(0, **{topic: 1000 * (10 + seconds)})
    assert passes(connection(quotas), fetch(topic, epoch=-1), 0, answer)


@pytest.mark.parametrize("version", [7, 11, 12])
def test_a_fetch_session_of_another_connection_does_not_escape_a_topics_rate(version: int) -> None:
    quotas = BrokerQuotas.create(RATES)
    first = connection(quotas)
    assert passes(first, fetch("a", version=version), 0, fetched(OURS, version, a=70_000))
    assert first.session.throttled_until_ms == 60_000
    for epoch in range(1, 5):
        other = connection(quotas)
        assert not passes(other, fetch(session_id=OURS, epoch=epoch, version=version), 1000 * epoch)
        assert other.session.throttled_until_ms == 60_000


def test_a_fetch_session_waits_while_another_connection_exceeds_its_topics_rate() -> None:
    quotas = BrokerQuotas.create(RATES)
    wire = connection(quotas)
    assert passes(wire, fetch("a"), 0, fetched(OURS))
    assert passes(wire, fetch(session_id=OURS, epoch=1), 0)
    exceed(quotas, "a", seconds=60)
    assert not passes(wire, fetch(session_id=OURS, epoch=2), 1)
    wire.feed(60_000)
    assert wire.to_broker


def test_a_fetch_session_of_unthrottled_topics_continues() -> None:
    quotas = BrokerQuotas.create(RATES)
    exceed(quotas, "a", seconds=60)
    wire = connection(quotas)
    assert passes(wire, fetch("b", "c"), 0, fetched(OURS))
    assert passes(wire, fetch(session_id=OURS, epoch=1), 1)
    assert not passes(wire, fetch("a", session_id=OURS, epoch=2), 2), "it has named another topic"


def test_a_connection_cannot_continue_an_unknown_fetch_session_freely() -> None:
    quotas = BrokerQuotas.create(RATES)
    exceed(quotas, "a", seconds=60)
    wire = connection(quotas)
    assert passes(wire, fetch("b"), 0, fetched(OURS))
    assert not passes(wire, fetch(session_id=THEIRS, epoch=1), 1)


def test_topics_of_a_fetch_session_older_than_the_rate_are_learnt_from_responses() -> None:
    quotas = BrokerQuotas.create(RATES)
    wire = connection(quotas)
    assert passes(wire, fetch(session_id=THEIRS, epoch=1), 0, fetched(THEIRS, b=100))
    exceed(quotas, "a", seconds=60)
    assert passes(wire, fetch(session_id=THEIRS, epoch=2), 1, fetched(THEIRS))
    exceed(quotas, "b", seconds=60)
    assert not passes(wire, fetch(session_id=THEIRS, epoch=3), 2)


@in_one_test
@pytest.mark.parametrize("cut", range(1, 30))
def test_a_fetch_session_id_is_read_from_a_response_in_pieces(cut: int) -> None:
    quotas = BrokerQuotas.create(RATES)
    exceed(quotas, "a", seconds=60)
    wire = Wire(new_connection(quotas=quotas, buffer_bytes=64))
    answer = fetched(OURS, c=200)
    wire.feed(0, client=fetch("b"))
    wire.feed(0, broker=answer[:cut])
    wire.feed(0, broker=answer[cut:])
    assert bytes(wire.to_client) == answer
    assert passes(wire, fetch(session_id=OURS, epoch=1), 1, fetched(OURS))


# Answers that are not read to their end


def test_a_client_that_leaves_during_a_fetch_response_is_charged_for_its_topics() -> None:
    """Answers larger than the buffer are counted as they go by: all but a byte of 50 MB was for nothing."""
    quotas = BrokerQuotas.create(RATES)
    session = new_connection(quotas=quotas, buffer_bytes=4096)
    wire = Wire(session)
    wire.feed(0, client=fetch("a", epoch=-1))
    wire.feed(0, broker=fetched(0, a=70_000)[:-1])
    assert session.throttled_until_ms == 0
    session.end(5)
    session.end(6)
    other = connection(quotas)
    assert not passes(other, fetch("a", epoch=-1), 10)
    assert other.session.throttled_until_ms == 60_005


def test_a_client_that_leaves_a_relay_during_a_fetch_response_is_charged() -> None:
    quotas = BrokerQuotas.create(RATES)
    rig = Rig(session=new_connection(quotas=quotas), broker_pair=tcp_pair)
    try:
        rig.pass_on(fetch("a", epoch=-1), rig.client, rig.broker)
        sent = fetched(0, a=600_000)[:-1]
        assert rig.pass_on(sent, rig.broker, rig.client) == sent
        rig.relay.close(CloseReason.CLIENT_RESET)
        assert quotas.topics is not None
        assert quotas.topics.fetch.throttled_until_ms(["a"]) == 590_000
    finally:
        rig.close()
