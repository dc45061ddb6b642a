"""Large requests and responses are worked on in pieces: other connections have their turns in between.

Work is counted, not timed: the number of Python calls in each turn of a reactor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Final
from uuid import UUID

import pytest

from tests.kfake.controller import NODE, Controller
from tests.matrix import first_core
from tests.proxy.mutation_cluster import Cluster, limited, quotas_of
from tests.proxy.rigs import Rig, tcp_pair
from tests.proxy.wire import new_connection
from tests.wire.frames import body_of, request, response, split
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.pending_creations import LOOKED_FOR_MAX, PENDING_MAX_EACH
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics
from weir.proxy.handlers.whole_requests import ELEMENTS_MAX

COUNT: Final = 2000
CALLS_MAX: Final = 16_000
"""Python calls of a turn: about two milliseconds. The first turn with a message compiles its codec, too. Each
request below takes several times as many in all.
"""
RICH: Final = 1e6


class Attack:
    """One connection through a relay, with the broker at its other end, and the calls of each turn."""

    def __init__(
        self, *, topics: int = 0, partitions: int = 1, rate: float = 1.0, protected: tuple[str, ...] = ()
    ) -> None:
        self.controller = Controller(creates=False)
        for number in range(topics):
            self.controller.add(f"t{number}", partitions)
        quotas = quotas_of(limited(rate))
        plans = Plans(Counters(), protected=ProtectedTopics(protected, frozenset()))
        connection = new_connection(quotas=quotas, plans=plans, node_id=NODE)
        self.rig = Rig(connection=connection, pair=tcp_pair)
        self.calls: list[int] = []

    def turn(self) -> None:
        count = 0

        def profile(_frame: FrameType, event: str, _arg: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(profile)
        try:
            self.rig.reactor.turn(0)
        finally:
            sys.setprofile(None)
        self.calls.append(count)

    def send(self, frame: bytes, answers: int = 1) -> bytes:
        """Send requests; return the frames of this many responses, b"" if the connection closes."""
        to_broker, to_client = bytearray(), bytearray()
        self.calls.clear()
        for _ in range(10_000):
            frame = self.rig.send(self.rig.client, frame) if frame and not self.rig.ends else b""
            self.turn()
            if self.rig.ends:
                return b""
            to_broker += self.rig.take(self.rig.broker)
            while len(to_broker) >= 4 and len(to_broker) >= 4 + int.from_bytes(to_broker[:4], "big"):
                (asked, *_) = split(bytes(to_broker[: 4 + int.from_bytes(to_broker[:4], "big")]))
                del to_broker[: len(asked)]
                self._answer(self.controller.answer(asked))
            to_client += self.rig.take(self.rig.client)
            told = split(bytes(to_client))
            if len(told) == answers and len(told[-1]) == 4 + int.from_bytes(told[-1][:4], "big"):
                return bytes(to_client)
        raise AssertionError("no response")

    def _answer(self, told: bytes) -> None:
        while told:
            told = self.rig.send(self.rig.broker, told)
            self.turn()


def metadata(count: int, *, creating: bool = True, name: str = "t%d") -> bytes:
    wanted = MetadataRequest.MetadataRequestTopic
    topics = [wanted(name=name % number) for number in range(count)]
    return request(MetadataRequest(topics=topics, allow_auto_topic_creation=creating), 9)


def creation(count: int, version: int = 7, partitions: int = 1, configs: int = 0) -> bytes:
    topic, config = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableTopicConfig
    some = [config(name="", value="")] * configs
    topics = [
        topic(name=f"new{number}", num_partitions=partitions, replication_factor=1, configs=some)
        for number in range(count)
    ]
    return request(CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True), version)


def deletion(count: int) -> bytes:
    state = DeleteTopicsRequest.DeleteTopicState
    return request(DeleteTopicsRequest(topics=[state(name=f"t{n}") for n in range(count)]), 6)


def deletion_by_id(count: int) -> bytes:
    state = DeleteTopicsRequest.DeleteTopicState
    topics = [state(name=None, topic_id=UUID(int=1001 + number)) for number in range(count)]
    return request(DeleteTopicsRequest(topics=topics), 6)


def growth(count: int) -> bytes:
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    topics = [topic(name=f"t{number}", count=3) for number in range(count)]
    return request(CreatePartitionsRequest(topics=topics, validate_only=True), 3)


def coordinators(count: int) -> bytes:
    return request(FindCoordinatorRequest(coordinator_keys=[f"k{number}" for number in range(count)]), 4)


ATTACKS: Final[dict[str, tuple[Callable[[], bytes], int, int]]] = {
    "Metadata, missing": (lambda: metadata(COUNT), 0, 0),
    "Metadata, existing": (lambda: metadata(COUNT), COUNT, 2),
    "Metadata, many partitions": (lambda: metadata(20), 20, 300),
    "CreateTopics, refused": (lambda: creation(COUNT), 0, 0),
    "CreateTopics, permissive": (lambda: creation(COUNT, version=5), 0, 0),
    "CreateTopics, configs": (lambda: creation(1, configs=3 * COUNT), 0, 0),
    "CreateTopics, default partitions": (lambda: creation(COUNT, partitions=-1), 0, 0),
    "DeleteTopics, missing": (lambda: deletion(COUNT), 0, 0),
    "DeleteTopics, existing": (lambda: deletion(COUNT), COUNT, 2),
    "DeleteTopics by id": (lambda: deletion_by_id(500), 500, 2),
    "CreatePartitions": (lambda: growth(COUNT), COUNT, 1),
    "FindCoordinator": (lambda: coordinators(COUNT), 0, 0),
}


@pytest.mark.parametrize(
    ("attack", "rate"),
    first_core(
        [*((attack, 1.0) for attack in ATTACKS), *((attack, RICH) for attack in ATTACKS)], len(ATTACKS)
    ),
)
def test_no_turn_does_more_than_a_piece_of_a_large_request(attack: str, rate: float) -> None:
    made, topics, partitions = ATTACKS[attack]
    far = Attack(topics=topics, partitions=partitions, rate=rate)
    try:
        assert far.send(made())
        assert max(far.calls) <= CALLS_MAX
        assert sum(far.calls) > CALLS_MAX
    finally:
        far.rig.close()


@pytest.mark.parametrize("made", [metadata, creation, deletion, growth])
def test_a_request_of_too_many_elements_closes_the_connection(made: Callable[[int], bytes]) -> None:
    far = Attack()
    try:
        assert far.send(made(ELEMENTS_MAX + 1)) == b""
        assert far.rig.reason == CloseReason.REQUEST_TOO_LARGE
        assert max(far.calls) <= CALLS_MAX
    finally:
        far.rig.close()


def test_a_large_request_that_no_broker_reads_is_forwarded_unread() -> None:
    far = Attack()
    whole = creation(COUNT)
    cut = (len(whole) - 4 - 100).to_bytes(4, "big") + whole[4:-100]
    try:
        far.rig.send(far.rig.client, cut)
        got = bytearray()
        for _ in range(1000):
            far.turn()
            got += far.rig.take(far.rig.broker)
        assert got == cut
    finally:
        far.rig.close()


def test_a_large_deletion_is_decoded_once_for_protected_topics_and_for_the_quota() -> None:
    far = Attack(topics=200, partitions=2, rate=RICH, protected=("weir-quotas",))
    try:
        assert far.send(deletion_by_id(200))
        assert len(far.controller.asked_of(DeleteTopicsRequest)) == 1
        assert far.controller.topics == {}
    finally:
        far.rig.close()


def test_other_requests_wait_while_a_large_request_is_decoded() -> None:
    far = Attack(rate=RICH)
    small = request(MetadataRequest(topics=[]), 9, correlation_id=2)
    try:
        answers = split(far.send(metadata(COUNT) + small, answers=2))
        assert [int.from_bytes(each[4:8], "big") for each in answers] == [1, 2]
    finally:
        far.rig.close()


def test_a_connection_that_closes_while_its_request_is_decoded_leaves_nothing_behind() -> None:
    far = Attack()
    far.rig.send(far.rig.client, metadata(COUNT))
    for _ in range(5):
        far.turn()
    assert far.rig.connection.paused is not None
    far.rig.relay.close(CloseReason.STOPPED)
    far.rig.turn(5)
    assert not far.rig.connection.waits_for_turn
    far.rig.close()


def test_a_response_that_nobody_awaits_closes_a_connection_whose_query_has_paused() -> None:
    far = Attack()
    far.rig.send(far.rig.client, metadata(COUNT))
    for _ in range(5):
        far.turn()
    assert far.rig.connection.paused is not None
    far.rig.send(far.rig.broker, response(MetadataResponse(), 9))
    for _ in range(3):
        far.turn()
    assert far.rig.reason == CloseReason.RESPONSE_UNEXPECTED
    far.rig.close()


def test_a_large_malformed_answer_to_a_query_closes_the_connection() -> None:
    far = Attack()
    topic = MetadataResponse.MetadataResponseTopic
    told = response(MetadataResponse(topics=[topic(name="x" * 50)] * 200), 9)
    try:
        far.rig.send(far.rig.client, metadata(20))
        for _ in range(100):
            far.turn()
            if far.rig.take(far.rig.broker):
                far.rig.send(far.rig.broker, told[:-3] + b"\xff\xff\xff")
        assert far.rig.reason == CloseReason.RESPONSE_MALFORMED
    finally:
        far.rig.close()


def test_large_creations_and_deletions_are_charged_topic_by_topic() -> None:
    cluster = Cluster()
    topic = CreateTopicsRequest.CreatableTopic
    topics = [topic(name=f"c{n}", num_partitions=4, replication_factor=1) for n in range(COUNT)]
    (frame,) = cluster.connect().send(0, request(CreateTopicsRequest(topics=topics), 7))
    created = body_of(frame, CreateTopicsResponse, 7).topics
    # The bucket of 10 tokens is overdrawn by the third topic of 4 partitions.
    assert [result.error_code for result in created[:4]] == [0, 0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert [result.name for result in created] == [f"c{n}" for n in range(COUNT)]
    assert cluster.tokens == 10 - 12

    state = DeleteTopicsRequest.DeleteTopicState
    gone = [state(name=f"c{n}") for n in range(COUNT)]
    (frame,) = cluster.connect().send(2000, request(DeleteTopicsRequest(topics=gone), 6))
    deleted = {each.name: each.error_code for each in body_of(frame, DeleteTopicsResponse, 6).responses}
    assert [deleted[f"c{n}"] for n in range(4)] == [0, 89, 89, 3]
    assert cluster.tokens == 0 - 4


def test_a_small_metadata_request_looks_for_a_few_of_many_pending_creations() -> None:
    far = Attack(rate=RICH)
    try:
        assert far.send(metadata(PENDING_MAX_EACH))
        looked_for: set[str | None] = set()
        for _ in range(PENDING_MAX_EACH // LOOKED_FOR_MAX):
            far.controller.received.clear()
            assert far.send(metadata(1))
            look, _own = far.controller.messages_of(MetadataRequest)
            assert len(look.topics or ()) == LOOKED_FOR_MAX
            looked_for |= {topic.name for topic in look.topics or ()}
        assert len(looked_for) == PENDING_MAX_EACH
    finally:
        far.rig.close()
