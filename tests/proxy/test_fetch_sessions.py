"""Fetches that go on with a fetch session name no topics: a rate covers them all the same (KIP-227)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.matrix import in_one_test
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import request
from tests.wire.messages import fetched_from
from weir.protocol.messages import FetchRequest
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable

A, B = Entity(topic="a"), Entity(topic="b")
RATES = QuotaTable({(topic, QuotaKey.CONSUMER_BYTE_RATE): 1000.0 for topic in (A, B)})
OURS, THEIRS = 7, 8
"""Ids of sessions."""


@dataclass(frozen=True)
class Fetch:
    topics: tuple[str, ...]
    session_id: int
    epoch: int
    version: int

    def frame(self, *, least: bool = False) -> bytes:
        """Return its frame; with `least`, as the broker gets it from a client over its rate."""
        message = FetchRequest(
            topics=[FetchRequest.FetchTopic(topic=topic) for topic in self.topics],
            session_id=self.session_id,
            session_epoch=self.epoch,
            max_wait_ms=0 if least else 500,
            min_bytes=0 if least else 1,
            max_bytes=1 if least else 50_000,
        )
        return request(message, self.version)


def fetch(*topics: str, session_id: int = 0, epoch: int = 0, version: int = 12) -> Fetch:
    return Fetch(topics, session_id, epoch, version)


def connection(quotas: BrokerQuotas) -> Wire:
    return Wire(new_connection(quotas=quotas))


def delivers(wire: Wire, asked: Fetch, now_ms: int, session_id: int = OURS, **sizes: int) -> bool:
    """Return whether a fetch, which the broker answers at once, gets records; if not, it must have asked for
    least, and is told the throttle time in a response that is the same but for the records.
    """
    wire.to_broker.clear()
    wire.to_client.clear()
    sizes = sizes or {"a": 1, "b": 1}
    wire.feed(now_ms, client=asked.frame())
    delivered = bytes(wire.to_broker) == asked.frame()
    assert delivered or bytes(wire.to_broker) == asked.frame(least=True)
    wire.feed(now_ms, broker=fetched_from(version=asked.version, session_id=session_id, **sizes))
    if not delivered:
        empty = dict.fromkeys(sizes, 0)
        told_ms = wire.connection.throttled_until_ms - now_ms
        assert told_ms > 0
        assert bytes(wire.to_client) == fetched_from(
            throttle_ms=told_ms, version=asked.version, session_id=session_id, **empty
        )
    return delivered


def exceed(quotas: BrokerQuotas, topic: str, seconds: int) -> None:
    """Somebody fetches so much of a topic at 0 that its rate is exceeded for so long."""
    assert delivers(connection(quotas), fetch(topic, epoch=-1), 0, 0, **{topic: 1000 * (10 + seconds)})


@pytest.mark.parametrize("version", [7, 11, 12])
def test_a_fetch_session_of_another_connection_gets_no_records_of_a_throttled_topic(version: int) -> None:
    quotas = BrokerQuotas.create(RATES)
    first = connection(quotas)
    assert delivers(first, fetch("a", version=version), 0, a=70_000)
    assert first.connection.throttled_until_ms == 60_000
    for epoch in range(1, 5):
        other = connection(quotas)
        goes_on = fetch(session_id=OURS, epoch=epoch, version=version)
        assert not delivers(other, goes_on, 1000 * epoch, a=5000)
        assert other.connection.throttled_until_ms == 60_000
    assert quotas.topics is not None
    assert [budget.charged for budget in quotas.topics.fetch.budgets()] == [70_000, 0]


def test_a_fetch_session_gets_no_records_while_another_connection_exceeds_its_topics_rate() -> None:
    quotas = BrokerQuotas.create(RATES)
    wire = connection(quotas)
    assert delivers(wire, fetch("a"), 0, a=0)
    assert delivers(wire, fetch(session_id=OURS, epoch=1), 0, a=0)
    exceed(quotas, "a", seconds=60)
    assert not delivers(wire, fetch(session_id=OURS, epoch=2), 1, a=300)
    wire.to_broker.clear()
    wire.feed(59_999, client=fetch(session_id=OURS, epoch=3).frame())
    assert not wire.to_broker
    wire.feed(60_000)
    assert bytes(wire.to_broker) == fetch(session_id=OURS, epoch=3).frame()


def test_a_fetch_without_fetch_sessions_leaves_the_topics_of_the_connections_fetch_session() -> None:
    quotas = BrokerQuotas.create(RATES)
    wire = connection(quotas)
    assert delivers(wire, fetch("a"), 0, a=0)
    exceed(quotas, "a", seconds=60)
    assert delivers(wire, fetch("b", version=4), 1, 0, b=1)
    assert not delivers(wire, fetch(session_id=OURS, epoch=1), 1, a=300)


def test_a_connection_gets_no_records_of_an_unknown_fetch_session_while_any_topic_is_throttled() -> None:
    quotas = BrokerQuotas.create(RATES)
    exceed(quotas, "a", seconds=60)
    wire = connection(quotas)
    assert delivers(wire, fetch("b"), 0, b=0)
    assert not delivers(wire, fetch(session_id=THEIRS, epoch=1), 1, THEIRS, b=10)


def test_topics_of_a_fetch_session_older_than_the_rate_are_learnt_from_responses() -> None:
    quotas = BrokerQuotas.create(RATES)
    wire = connection(quotas)
    assert delivers(wire, fetch(session_id=THEIRS, epoch=1), 0, THEIRS, b=100)
    exceed(quotas, "a", seconds=60)
    assert delivers(wire, fetch(session_id=THEIRS, epoch=2), 1, THEIRS, b=0)
    exceed(quotas, "b", seconds=60)
    assert not delivers(wire, fetch(session_id=THEIRS, epoch=3), 2, THEIRS, b=100)


def test_a_fetch_session_is_not_learnt_from_a_response_without_records() -> None:
    """Else the next fetch of it would be taken for one of no topics, whatever these have been used."""
    quotas = BrokerQuotas.create(RATES)
    exceed(quotas, "a", seconds=60)
    wire = connection(quotas)
    assert not delivers(wire, fetch(session_id=THEIRS, epoch=1), 1, THEIRS, a=10)
    assert quotas.topics is not None
    assert quotas.topics.fetch.charge({b"a": 30_000}, 60_000) > 0
    assert not delivers(wire, fetch(session_id=THEIRS, epoch=2), 60_000, THEIRS, a=10)


@in_one_test
@pytest.mark.parametrize("cut", range(1, 60))
def test_a_fetch_session_id_is_read_from_a_response_whose_records_are_taken_out(cut: int) -> None:
    """The session is of topics that are not throttled by then: its next fetch is not over."""
    quotas = BrokerQuotas.create(RATES)
    wire = connection(quotas)
    wire.feed(0, client=fetch("b").frame())
    assert quotas.topics is not None
    assert quotas.topics.fetch.charge({b"b": 11_000}, 0) == 1000
    answer = fetched_from(session_id=OURS, b=200)
    wire.feed(0, broker=answer[:cut])
    wire.feed(0, broker=answer[cut:])
    assert bytes(wire.to_client) == fetched_from(session_id=OURS, throttle_ms=1000, b=0)
    assert quotas.topics.fetch.charge({b"a": 70_000}, 0) == 60_000
    assert delivers(wire, fetch(session_id=OURS, epoch=1), 1000, b=10)


# Answers that are not read to their end


def test_a_client_that_leaves_during_a_fetch_response_is_charged_for_its_topics() -> None:
    """Answers larger than the buffer are counted as they go by: all but a byte of 50 MB was for nothing."""
    quotas = BrokerQuotas.create(RATES)
    session = new_connection(quotas=quotas, buffer_bytes=4096)
    wire = Wire(session)
    wire.exchange(0, fetch("a", epoch=-1).frame(), fetched_from(session_id=0, a=70_000)[:-1])
    assert session.throttled_until_ms == 0
    session.end(5)
    other = connection(quotas)
    assert not delivers(other, fetch("a", epoch=-1), 10, 0, a=1)
    assert other.connection.throttled_until_ms == 60_005
