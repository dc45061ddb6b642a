"""Names of topics that requests identify by id: the table, and questions to the broker for the others."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kfake.cluster import Cluster
from tests.kfake.direct import Client
from tests.protocol.generate import messages
from tests.proxy.wire import new_connection
from tests.wire.frames import body_of, request, response
from tests.wire.messages import fetched_from, id_of, identity, produce_to, produced
from weir.protocol.api import ApiKey
from weir.protocol.codec import codec
from weir.protocol.messages import (
    CreateTopicsResponse,
    DescribeTopicPartitionsResponse,
    FetchRequest,
    MetadataRequest,
    MetadataResponse,
)
from weir.protocol.scanning.topic_identities import TopicIdentities, has_identities
from weir.protocol.values import Message, schema_of
from weir.proxy.close_reasons import CloseReason
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics
from weir.proxy.handlers.topics.names_by_id import NamesById, UnnamedTopics
from weir.quotas import Entity, QuotaKey, QuotaTable

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
RATES: Final = QuotaTable({(Entity(topic="a"), key): 10**9 for key in (PRODUCE, FETCH)})
LEAST: Final = 6
"""Names of the table of this size that were used last and must stay: half of it."""


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=200))
def test_the_table_of_names_is_bounded_and_keeps_the_half_that_was_used_last(
    steps: list[tuple[bool, int]],
) -> None:
    """A model: all that was ever learned, ordered by use."""
    names, learned = NamesById(2 * LEAST), OrderedDict[int, bytes]()
    for learns, number in steps:
        topic_id, name = UUID(int=number).bytes, f"topic-{number}".encode()
        kept = number in list(learned)[-LEAST:]
        if learns:
            names.learn(topic_id, name)
            learned[number] = name
        elif (found := names.name(topic_id)) is not None or kept:
            assert found == learned[number]
        if number in learned and names.name(topic_id) is not None:
            learned.move_to_end(number)
        assert len(names) <= 2 * LEAST


def test_brokers_without_topic_ids_teach_no_name() -> None:
    names = NamesById()
    names.learn(bytes(16), b"a")
    assert names.name(bytes(16)) is None


def test_topic_ids_without_a_name_are_bounded_and_belong_to_a_principal() -> None:
    topics = UnnamedTopics()
    for number in range(0, 100_000, 4000):
        some = [UUID(int=each).bytes for each in range(number, number + 4000)]
        topics.not_named("alice", some, 0)
        topics.meet(str(number % 3), some)
    assert sum(map(len, topics.met.values())) <= 10_000
    assert topics.to_ask("alice", some, 999) == set()
    assert topics.to_ask("bob", some, 999) == topics.to_ask("alice", some, 1000) == set(some)


class Play:
    """A client of brokers that have the topics `a` and `b`, and a rate for `a`."""

    def __init__(
        self, table: QuotaTable = RATES, *, buffer_bytes: int = 256 * 1024, protected: tuple[str, ...] = ()
    ) -> None:
        self.cluster = Cluster()
        for name in ("a", "b"):
            self.cluster.add(name, topic_id=id_of(name))
        self.plans = Plans(Counters(), protected=ProtectedTopics(protected))
        self.table, self.buffer_bytes = table, buffer_bytes
        self.reconnect()

    def reconnect(self) -> None:
        connection = new_connection(self.table, plans=self.plans, buffer_bytes=self.buffer_bytes)
        self.client = Client(connection, self.cluster)

    def charged(self, key: QuotaKey) -> int:
        topics = self.client.connection.quotas.topics
        assert topics is not None
        rates = topics.produce if key is PRODUCE else topics.fetch
        return sum(int(budget.charged) for budget in rates.budgets())

    @property
    def asked(self) -> int:
        return sum(len(one.topics or ()) for one in self.cluster.messages_of(MetadataRequest))


def fetch(*topics: str, session_id: int = 0, epoch: int = -1) -> bytes:
    named = [FetchRequest.FetchTopic(**identity(topic, 13)) for topic in topics]
    return request(FetchRequest(topics=named, session_id=session_id, session_epoch=epoch), 13)


def test_an_unknown_topic_id_is_asked_for_once_by_all_connections_and_charged_from_the_first_on() -> None:
    play = Play()
    for number in range(3):
        play.client.send(0, produce_to(number, 13, a=100, b=50))
        play.client.send(0, fetch("a", "b"))
        play.reconnect()
    assert play.asked == 2
    assert play.client.connection.quotas is not None
    frames = [each.frame for each in play.cluster.received]
    assert frames.count(produce_to(2, 13, a=100, b=50)) == 1


def test_a_produce_request_with_an_unknown_topic_id_is_charged_after_the_question() -> None:
    play = Play()
    play.client.send(0, produce_to(1, 13, a=100, b=50), produce_to(2, 13, a=10))
    assert play.charged(PRODUCE) == 110
    assert play.asked == 2


def test_a_fetch_with_an_unknown_topic_id_is_charged_after_the_question() -> None:
    play = Play()
    play.cluster.handlers[ApiKey.FETCH] = lambda *_: body(fetched_from(1, 0, 13, a=100, b=50))
    play.client.send(0, fetch("a", "b"))
    assert (play.charged(FETCH), play.asked) == (100, 2)


def body(frame: bytes) -> bytes:
    """The body of a response whose header has tagged fields."""
    return frame[9:]


def of_all(version: int = 12) -> bytes:
    return request(MetadataRequest(topics=None), version)


@pytest.mark.parametrize("protects", [False, True])
def test_names_are_learned_from_metadata_that_passes(protects: bool) -> None:
    play = Play(QuotaTable() if protects else RATES, protected=("a",) if protects else ())
    for _ in range(2):
        play.client.send(0, of_all())
    received = len(play.cluster.received)
    for version in range(1, 13):
        play.client.send(0, of_all(version))
    play.client.send(0, produce_to(1, 13, b=100), fetch("b"))
    assert len(play.cluster.received) == received + 14, "each request of the client's, no question of Weir's"


def test_no_metadata_is_read_while_no_topic_has_a_rate() -> None:
    play = Play(QuotaTable())
    play.client.send(0, of_all())
    assert len(play.plans.cluster.names_by_id) == 0


def test_a_large_metadata_response_is_read_over_several_turns_and_forwarded_unchanged() -> None:
    play = Play(buffer_bytes=4096)
    for number in range(5000):
        play.cluster.add(f"t{number}")
    (frame,) = play.client.send(0, of_all())
    answer = body_of(frame, MetadataResponse, 12)
    names = play.plans.cluster.names_by_id
    assert len(answer.topics) == 5002
    assert all(names.name(topic.topic_id.bytes) == str(topic.name).encode() for topic in answer.topics)


def test_a_malformed_metadata_response_teaches_no_name_and_closes_no_connection() -> None:
    """Its addresses can be read; Weir reads the topics of other responses only."""
    play = Play()
    whole = response(MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="x" * 90)]), 12)
    play.cluster.handlers[ApiKey.METADATA] = lambda *_: body(whole)[:-60]
    assert len(play.client.send(0, of_all())) == 1


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (message, version)
        for message in (MetadataResponse, CreateTopicsResponse, DescribeTopicPartitionsResponse)
        for version in schema_of(message).versions
        if has_identities(message, version)
    ],
    ids=lambda one: one if isinstance(one, int) else one.__name__,
)
@settings(max_examples=5)
@given(data=st.data())
def test_the_scan_reports_the_topics_that_decoding_finds(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    value: Any = data.draw(messages(message, version))
    encoded, found = codec(message, version).encode(value), list[tuple[bytes, bytes]]()
    scan = TopicIdentities(message, version, {}, lambda *one: found.append(one))
    cut = data.draw(st.integers(0, len(encoded)))
    for start, stop in ((0, cut), (cut, len(encoded))):
        scan.feed(encoded[start:stop], 0, stop - start)
    assert scan.complete
    assert found == [(topic.topic_id.bytes, (topic.name or "").encode()) for topic in value.topics]


def test_a_topic_that_was_deleted_and_made_again_is_charged_under_its_new_id() -> None:
    play = Play()
    play.client.send(0, produce_to(1, 13, a=100))
    again = play.cluster.add("a", topic_id=id_of("c"))
    play.client.send(0, produce_to(2, 13, c=100))
    assert again.topic_id == id_of("c")
    assert (play.charged(PRODUCE), play.asked) == (200, 2)


def test_a_topic_that_the_client_may_not_describe_is_forwarded_and_asked_for_once_a_second() -> None:
    play = Play()
    play.cluster.denied.add("a")
    for now_ms in (0, 1, 999, 1000, 1500):
        play.client.send(now_ms, produce_to(1, 13, a=100))
    assert (play.charged(PRODUCE), play.asked) == (0, 2)
    assert play.plans.cluster.names_by_id.name(id_of("a").bytes) is None
    assert play.client.connection.counters.topics_unnamed == 2
    play.cluster.denied.clear()
    play.client.send(2000, produce_to(2, 13, a=100))
    assert (play.charged(PRODUCE), play.asked) == (100, 3)


def test_an_answer_that_weir_cannot_read_closes_no_connection() -> None:
    play = Play()
    play.cluster.handlers[ApiKey.METADATA] = lambda *_: b"\0\0\0\0\0"
    (frame,) = play.client.send(0, produce_to(1, 13, a=100))
    assert frame == produced(1, version=13)


def test_topic_ids_that_arrive_behind_forwarded_bytes_are_asked_for_by_the_next_request() -> None:
    play = Play(buffer_bytes=4096)
    play.client.send(0, produce_to(1, 13, b=20_000, a=6000))
    assert (play.charged(PRODUCE), play.asked) == (0, 1)
    play.client.send(0, produce_to(2, 13, b=20_000, a=6000))
    assert (play.charged(PRODUCE), play.asked) == (6000, 2)


def test_topic_ids_of_a_response_are_asked_for_by_the_next_fetch() -> None:
    """The fetch goes on with a fetch session of another connection, and names no topics."""
    play = Play()
    play.cluster.handlers[ApiKey.FETCH] = lambda *_: body(fetched_from(1, 0, 13, 7, a=100))
    for _ in range(2):
        play.client.send(0, fetch(session_id=7, epoch=3))
    assert (play.charged(FETCH), play.asked) == (100, 1)


def test_a_fetch_of_ten_thousand_topics_with_unknown_ids_is_charged_from_the_next_one_on() -> None:
    play = Play()
    play.cluster.handlers[ApiKey.FETCH] = lambda *_: body(fetched_from(1, 0, 13, a=100))
    partition = FetchRequest.FetchPartition()
    names = ["a", *(f"n{number}" for number in range(9999))]
    topics = [FetchRequest.FetchTopic(**identity(name, 13), partitions=[partition]) for name in names]
    for _ in range(3):
        assert len(play.client.send(0, request(FetchRequest(topics=topics), 13))) == 1
    assert (play.charged(FETCH), play.asked) == (200, 1)


def test_a_produce_request_with_too_many_unknown_topic_ids_is_refused() -> None:
    """It has more topics than Weir scans in a turn, so it is forwarded in parts."""
    play = Play()
    wire, frame = play.client.wire, produce_to(1, 13, **{f"n{number}": 0 for number in range(20_000)})
    wire.feed(0, client=frame)
    play.client.answer(0)
    assert wire.closed(0) is CloseReason.REQUEST_TOO_LARGE
