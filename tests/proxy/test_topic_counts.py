"""Limits on the number of topics by prefix, in front of a broker that creates topics in every way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.kfake.cluster import everything
from tests.kfake.controller import EXISTS, NODE, OK, POLICY, REPLICATION_FACTOR, UNKNOWN_TOPIC, Controller
from tests.kfake.streams import SOURCE, StreamsBroker
from tests.mutations.requests import Create, Delete, Grow, Topic
from tests.proxy.counted_topics import count_topics
from tests.proxy.mutation_cluster import Cluster, limited
from tests.wire.frames import body_of, request, split
from weir.protocol.messages import (
    MetadataRequest,
    MetadataResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.topic_counts.counted_topics import CountedTopics
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.topic_counts import LATE_MS, TopicGrowth

LIMIT: Final = QuotaTable({(Entity(topic_prefix="pay."), QuotaKey.TOPICS_MAX): 2})
METADATA: Final = 3


class Counted(Cluster):
    """A cluster with the topics `sizes`, and a limit of two topics with the prefix `pay.`."""

    def __init__(
        self,
        controller: Controller | None = None,
        *,
        rate: float | None = None,
        table: QuotaTable = LIMIT,
        **sizes: int,
    ) -> None:
        named = {name.replace("_", "."): size for name, size in sizes.items()}
        super().__init__(controller=controller, sizes=named, table=limited(rate))
        self.counts = count_topics(self.plans, table)
        self.counts.read(self.controller.sizes(), 0)

    def ask_for(self, *names: str, version: int = 12) -> list[tuple[str | None, int]]:
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        (frame,) = self.connect().send(0, request(MetadataRequest(topics=wanted), version))
        answer = body_of(frame, MetadataResponse, version)
        assert {(each.host, each.port) for each in answer.brokers} == {("weir", 19094)}
        return [(each.name, each.error_code) for each in answer.topics]


@pytest.mark.parametrize("rate", [None, 1.0])
def test_refusals_stand_in_the_order_of_the_request_and_name_the_entry(rate: float | None) -> None:
    cluster = Counted(rate=rate, pay_a=1)
    asked = Create((Topic("x"), Topic("pay.b"), Topic("pay.c"), Topic("pay.a"), Topic("y")))
    results = cluster.ask(0, asked).results
    codes = [(one.name, one.error_code) for one in results]
    assert codes == [("x", OK), ("pay.b", OK), ("pay.c", POLICY), ("pay.a", EXISTS), ("y", OK)]
    assert "topics_max of topic prefix pay. is 2" in (results[2].error_message or "")
    _validated, forwarded = cluster.mutations()
    assert [topic.name for topic in forwarded.topics] == ["x", "pay.b", "pay.a", "y"]  # type: ignore[attr-defined]


def test_of_refused_topics_alone_the_broker_validates_a_request() -> None:
    cluster = Counted(pay_a=1, pay_b=1)
    assert cluster.codes(0, Create((Topic("pay.c"),), version=0)) == {"pay.c": POLICY}
    validated = cluster.mutations()
    assert [request.validate_only for request in validated] == [True]  # type: ignore[attr-defined]
    assert set(cluster.controller.sizes()) == {"pay.a", "pay.b"}


@pytest.mark.parametrize("by_id", [False, True])
def test_a_deletion_makes_room_at_once(*, by_id: bool) -> None:
    cluster = Counted(pay_a=1, pay_b=1)
    topic = cluster.controller.topics["pay.a"].topic_id if by_id else "pay.a"
    assert cluster.ask(0, Delete((topic,))).error_codes == (OK,)
    assert cluster.codes(0, Create((Topic("pay.c"), Topic("pay.d")))) == {"pay.c": OK, "pay.d": POLICY}


def test_a_topic_the_broker_refuses_makes_room_for_another() -> None:
    cluster = Counted(pay_a=1)
    assert cluster.codes(0, Create((Topic("pay.b", configs={"no.such": "thing"}),))) == {"pay.b": 40}
    assert cluster.codes(0, Create((Topic("pay.c"),))) == {"pay.c": OK}


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_that_only_the_broker_refuses_takes_no_room_in_its_request(*, validate_only: bool) -> None:
    cluster = Counted(pay_a=1)
    broken = {"no.such": "thing"}
    asked = Create(
        (Topic("pay.b", configs=broken), Topic("pay.c"), Topic("pay.d"), Topic("pay.e", configs=broken)),
        validate_only=validate_only,
    )
    assert cluster.codes(0, asked) == {"pay.b": 40, "pay.c": OK, "pay.d": POLICY, "pay.e": 40}
    assert [one.refused for one in cluster.counts.readings()] == [0 if validate_only else 1]


@pytest.mark.parametrize("by_metadata", [False, True])
def test_the_room_of_a_creation_whose_connection_is_lost_is_free_after_another_reading(
    *, by_metadata: bool
) -> None:
    cluster = Counted(pay_a=1)
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="pay.b")])
    client = cluster.connect()
    client.wire.feed(0, client=request(wanted, 12) if by_metadata else Create((Topic("pay.b"),)).frame("app"))
    while [one.number for one in cluster.counts.readings()] != [2]:
        (asked,) = split(bytes(client.wire.to_broker))
        client.wire.to_broker.clear()
        client.wire.feed(0, broker=cluster.controller.answer(asked, 0))
    client.connection.end(0)
    for now_ms, number in ((LATE_MS - 1, 2), (LATE_MS, 1)):
        cluster.counts.read(cluster.controller.sizes(), now_ms)
        assert [one.number for one in cluster.counts.readings()] == [number]


def test_a_connection_lost_before_its_room_is_reserved_takes_none() -> None:
    counted, answers, settled = CountedTopics(), list[Callable[[list[str]], None]](), list[object]()
    counted.reserve_at = lambda _wanted, _validate_only, done: answers.append(done)
    counted.settle = lambda sizes, *_times: settled.append(sizes)
    query = counted.reserve([TopicGrowth("a", 0, 1), TopicGrowth("b", 0, 1)])
    next(query)
    query.close()
    answers[0](["full", ""])
    assert settled == [{"b": None}]


def test_growth_above_the_limit_is_refused() -> None:
    table = QuotaTable({(Entity(topic_prefix="pay."), QuotaKey.PARTITIONS_MAX): 5})
    cluster = Counted(table=table, pay_a=1, pay_b=2, x=1)
    grown = Grow((("pay.a", 3), ("pay.b", 3), ("x", 9)))
    assert cluster.codes(0, grown) == {"pay.a": OK, "pay.b": POLICY, "x": OK}


@pytest.mark.parametrize("newest", [1, 3, 4, 12])
@pytest.mark.parametrize("rate", [None, 1.0])
def test_metadata_creates_topics_up_to_the_limit_and_leaves_the_others_unknown(
    newest: int, rate: float | None
) -> None:
    spoken = everything() | {METADATA: VersionRange(0, newest)}
    cluster = Counted(Controller(spoken=spoken), rate=rate, pay_a=1)
    told = cluster.ask_for("pay.a", "pay.b", "pay.c", "x", version=newest)
    assert dict(told) == {"pay.a": OK, "pay.b": UNKNOWN_TOPIC, "pay.c": UNKNOWN_TOPIC, "x": UNKNOWN_TOPIC}
    assert dict(cluster.ask_for("pay.b", "pay.c", version=newest)) == {"pay.b": OK, "pay.c": UNKNOWN_TOPIC}
    assert set(cluster.controller.sizes()) == {"pay.a", "pay.b", "x"}


def test_a_limit_that_begins_holds_for_metadata_of_open_connections() -> None:
    cluster = Counted(table=QuotaTable(), pay_a=1, pay_b=1)
    client, creates = cluster.connect(), [MetadataRequest.MetadataRequestTopic(name="pay.c")]
    for _ in range(2):
        client.send(0, request(MetadataRequest(topics=[]), 12))  # the second is recognized by its first bytes
    cluster.quotas.use(LIMIT)
    count_topics(cluster.plans, LIMIT).read(cluster.controller.sizes(), 0)
    for _ in range(2):
        client.send(0, request(MetadataRequest(topics=creates), 12))
    assert set(cluster.controller.sizes()) == {"pay.a", "pay.b"}


def test_metadata_of_refused_topics_alone_asks_for_none() -> None:
    cluster = Counted(pay_a=1, pay_b=1)
    assert cluster.ask_for("pay.c", version=0) == [("pay.c", UNKNOWN_TOPIC)]
    assert set(cluster.controller.sizes()) == {"pay.a", "pay.b"}


@pytest.mark.parametrize(("topics", "code", "creates"), [(1, OK, True), (2, POLICY, True), (1, OK, False)])
@pytest.mark.parametrize("rate", [None, 1.0])
def test_a_streams_group_whose_topics_exceed_the_limit_is_refused(
    topics: int, code: int, rate: float | None, *, creates: bool
) -> None:
    cluster = Counted(StreamsBroker(), rate=rate, pay_a=1)
    if creates:
        cluster.controller.add(SOURCE, 1)
    asked = StreamsGroupHeartbeatRequest
    infos = [asked.TopicInfo(name=f"pay.log-{number}", partitions=1) for number in range(topics)]
    sub = asked.Subtopology(subtopology_id="0", source_topics=[SOURCE], state_changelog_topics=infos)
    heartbeat = asked(group_id="app", member_id="m", topology=asked.Topology(epoch=0, subtopologies=[sub]))
    (frame,) = cluster.connect().send(0, request(heartbeat, 0))
    answer = body_of(frame, StreamsGroupHeartbeatResponse, 0)
    assert answer.error_code == code
    assert ("topic prefix pay." in (answer.error_message or "")) == (code == POLICY)
    made = code == OK and creates  # without a source topic, the broker makes none
    assert len(cluster.controller.sizes()) == 1 + creates + made
    assert [reading.number for reading in cluster.counts.readings()] == [1 + made]


def test_a_topic_that_weir_takes_for_impossible_counts() -> None:
    cluster = Counted(Controller(fenced=1), pay_a=1)
    asked = Create((Topic("pay.b", replicas=2), Topic("pay.c", replicas=2), Topic("pay.d", replicas=3)))
    assert cluster.codes(0, asked) == {"pay.b": OK, "pay.c": POLICY, "pay.d": REPLICATION_FACTOR}


@pytest.mark.parametrize("assignments", [None, [[NODE]] * 4])
def test_growth_of_a_topic_that_metadata_does_not_show_counts(assignments: list[list[int]] | None) -> None:
    table = QuotaTable({(Entity(topic_prefix="pay."), QuotaKey.PARTITIONS_MAX): 5})
    cluster = Counted(Controller(lag={"pay.a"}), table=table, pay_a=2)
    assert cluster.codes(0, Grow((("pay.a", 6),), assignments=assignments)) == {"pay.a": POLICY}
    assert cluster.codes(0, Grow((("pay.none", 6), ("pay.less", -1)))) == {"pay.none": 3, "pay.less": 3}
    assert [reading.number for reading in cluster.counts.readings()] == [2]


@pytest.mark.parametrize("controller", [Controller(denied={"pay.x"}), Controller(creates=False)])
@pytest.mark.parametrize("rate", [None, 1.0])
def test_metadata_that_creates_no_topic_takes_no_room(controller: Controller, rate: float | None) -> None:
    cluster = Counted(controller, rate=rate)
    cluster.ask_for("pay.x")
    assert [reading.number for reading in cluster.counts.readings()] == [0]


def test_other_topics_are_asked_about_nothing() -> None:
    cluster = Counted(pay_a=1, pay_b=1)
    assert cluster.codes(0, Create((Topic("x"),))) == {"x": OK}
    assert cluster.ask_for("x") == [("x", OK)]
    assert [kind for kind, _version in cluster.controller.questions] == [19, METADATA]
