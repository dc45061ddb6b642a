"""Partition mutations under a quota: what each topic costs, who is refused, what reaches the broker."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import pytest

from tests.kfake.cluster import everything
from tests.kfake.controller import (
    ASSIGNMENT,
    CONFIG,
    EXISTS,
    INVALID_REQUEST,
    INVALID_TOPIC,
    NODE,
    NOT_CONTROLLER,
    OK,
    PARTITIONS,
    REPLICATION_FACTOR,
    THROTTLED,
    TIMED_OUT,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
)
from tests.mutations.requests import Create, Delete, Grow, Mutation, Topic
from tests.proxy.broker_versions import broker_of
from tests.proxy.mutation_cluster import BURST, RATE, Cluster, limited
from tests.proxy.wire import Wire, new_connection
from tests.quotas.changes import put_in_force
from tests.wire.frames import body_of, request, split
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    MetadataRequest,
)
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.mutations.mutations import ROUNDS_MAX
from weir.quotas import QuotaKey


def test_a_topic_that_exists_takes_no_token_from_those_behind_it() -> None:
    """Zero tokens still admit (KIP-599): only because the second costs nothing is the third created."""
    cluster = Cluster(sizes={"there": 3})
    asked = Create((Topic("first", BURST), Topic("there", 3), Topic("last", 1)))
    assert cluster.codes(0, asked) == {"first": OK, "there": EXISTS, "last": OK}
    assert cluster.tokens == -1
    assert len(cluster.mutations()) == 1, "nothing was charged first and refunded later"


# Escapes: what is charged in full, whatever a client tries


def test_deleting_topics_by_name_beside_ids_costs_their_partitions() -> None:
    """A broker that is asked for ids does not look at the names beside them (3.9.1)."""
    cluster = Cluster(sizes={"named": 4, "by id": 2})
    topic_id = cluster.controller.topics["by id"].topic_id
    assert cluster.ask(0, Delete(("named", topic_id))).error_codes == (OK, OK)
    assert cluster.tokens == BURST - 6


def test_topics_named_beside_ids_are_refused_without_tokens() -> None:
    cluster = Cluster(sizes={"named": 4, "by id": 2})
    cluster.overdraw()
    topic_id = cluster.controller.topics["by id"].topic_id
    assert cluster.ask(0, Delete(("named", topic_id))).error_codes == (THROTTLED, THROTTLED)
    assert cluster.controller.sizes() == {"named": 4, "by id": 2, "overdrawn": 15}


def test_a_deletion_without_name_and_id_does_not_hide_other_entries() -> None:
    """A broker that is asked for a topic with neither answers for none (3.9.1: -1 for all)."""
    cluster = Cluster(sizes={"named": 4})
    neither = UUID(int=0)
    codes = [one.error_code for one in cluster.ask(0, Delete(("named", neither))).results]
    assert codes == [OK, INVALID_REQUEST]
    assert cluster.tokens == BURST - 4


@pytest.mark.parametrize("zookeeper", [False, True])
@pytest.mark.parametrize("version", [0, 4, 5, 6])
@pytest.mark.parametrize("overdrawn", [False, True])
def test_deleting_a_topic_named_twice_is_an_error_and_costs_nothing(
    version: int, *, zookeeper: bool, overdrawn: bool
) -> None:
    """Controllers before KRaft would delete it; KRaft's say INVALID_REQUEST whatever the balance."""
    cluster = Cluster(sizes={"twice": 7, "once": 1})
    cluster.controller.zookeeper = zookeeper
    if overdrawn:
        cluster.overdraw()
    told = cluster.ask(0, Delete(("twice", "once", "twice"), version))
    once = THROTTLED if overdrawn and version >= 5 else OK
    assert [(one.name, one.error_code) for one in told.results] == [
        ("twice", INVALID_REQUEST),
        ("once", once),
    ]
    assert "twice" in cluster.controller.topics


@pytest.mark.parametrize("other", ["right", "another"])
def test_a_deletion_with_both_name_and_id_is_refused(other: str) -> None:
    """Its answer could be mistaken for another entry's, which would then be given back its tokens."""
    cluster = Cluster(sizes={"big": 7, "small": 1})
    ids = {name: topic.topic_id for name, topic in cluster.controller.topics.items()}
    state = DeleteTopicsRequest.DeleteTopicState
    both = (
        state(name="small", topic_id=ids["big"])
        if other == "right"
        else state(name="big", topic_id=UUID(int=5))
    )
    whole = DeleteTopicsRequest(topics=[both, state(name=None, topic_id=ids["big"])])
    (frame,) = cluster.connect().send(0, request(whole, 6))
    told = body_of(frame, DeleteTopicsResponse, 6).responses
    assert [one.error_code for one in told] == [INVALID_REQUEST, OK]
    assert cluster.controller.sizes() == {"small": 1}
    assert cluster.tokens == BURST - 7


def test_partitions_added_to_a_topic_missing_from_metadata_are_charged() -> None:
    """A broker's metadata lags behind its controller."""
    cluster = Cluster(sizes={"young": 1})
    cluster.controller.lag = {"young"}
    assert cluster.codes(0, Grow((("young", 8),))) == {"young": OK}
    assert cluster.tokens == BURST - 7


@pytest.mark.parametrize("count", [2**31 - 1, -(2**31), -1, 0])
def test_no_partition_count_returns_tokens(count: int) -> None:
    cluster = Cluster(sizes={"t": 2})
    cluster.ask(0, Grow((("t", count),)))
    cluster.ask(0, Grow((("t", count),), 0))
    if count != -1:
        cluster.ask(0, Create((Topic("new", count),), 4))
        cluster.ask(0, Create((Topic("new", count),)))
    assert cluster.tokens == BURST


def test_pipelined_mutations_are_charged_in_order() -> None:
    cluster = Cluster()
    frames = [Create((Topic(f"t{number}", 6),)).frame("app") for number in range(4)]
    told = cluster.connect().send(0, *frames)
    codes = [Create(()).answer(frame).error_codes for frame in told]
    assert codes == [(OK,), (OK,), (THROTTLED,)]  # and the client waits with the fourth
    assert cluster.tokens == -2


# What topics cost


COSTS: Final = [
    (Create((Topic("new", 4),)), OK, 4),
    (Create((Topic("new", 4, replicas=-1),)), OK, 4),
    (Create((Topic("new", -1),)), OK, 3),
    (Create((Topic("new", assignments=[[NODE]] * 2),)), OK, 2),
    (Create((Topic("new", 4),), validate_only=True), OK, 4),
    (Create((Topic("t2", 4),)), EXISTS, 0),
    (Create((Topic("n/w", 4),)), INVALID_TOPIC, 0),
    (Create((Topic("new", 0),)), PARTITIONS, 0),
    (Create((Topic("new", 4, replicas=5),)), REPLICATION_FACTOR, 0),
    (Create((Topic("new", 4, configs={"no": "such"}),)), CONFIG, 0),
    (Create((Topic("new", assignments=[[99]]),)), ASSIGNMENT, 0),
    (Grow((("t2", 5),)), OK, 3),
    (Grow((("t2", 5),), validate_only=True), OK, 3),
    (Grow((("t2", 2),)), PARTITIONS, 0),
    (Grow((("t2", 1),)), PARTITIONS, 0),
    (Grow((("none", 9),)), UNKNOWN_TOPIC, 0),
    (Grow((("t2", 4),), assignments=[[NODE]]), ASSIGNMENT, 0),
    (Grow((("t2", 4),), assignments=[[NODE], [99]]), ASSIGNMENT, 2),
    (Delete(("t2",)), OK, 2),
    (Delete(("none",)), UNKNOWN_TOPIC, 0),
    (Delete((UUID(int=1),)), UNKNOWN_TOPIC_ID, 0),
]


@pytest.mark.parametrize(("mutation", "code", "cost"), COSTS, ids=str)
def test_each_mutation_is_charged_its_partitions(mutation: Mutation, code: int, cost: int) -> None:
    cluster = Cluster(sizes={"t2": 2})
    answer = cluster.ask(0, mutation)
    assert answer.error_codes == (code,)
    assert answer.throttle_ms == 0
    assert cluster.tokens == BURST - cost


@pytest.mark.parametrize("version", range(8))
def test_createtopics_is_charged_in_every_version(version: int) -> None:
    cluster = Cluster()
    assert cluster.ask(0, Create((Topic("a", 12),), version)).error_codes == (OK,)
    answer = cluster.ask(0, Create((Topic("b", 1),), version))
    assert answer.error_codes == ((THROTTLED,) if version >= 6 else (OK,))
    assert answer.throttle_ms == (0 if version < 2 else 3000 if version < 6 else 2000)
    assert cluster.tokens == (-2 if version >= 6 else -3)


@pytest.mark.parametrize("version", range(4))
def test_createpartitions_is_charged_in_every_version(version: int) -> None:
    cluster = Cluster(sizes={"a": 1, "b": 1})
    assert cluster.ask(0, Grow((("a", 13),), version)).error_codes == (OK,)
    answer = cluster.ask(0, Grow((("b", 2),), version))
    assert answer.error_codes == ((THROTTLED,) if version >= 3 else (OK,))
    assert answer.throttle_ms == (3000 if version < 3 else 2000)


@pytest.mark.parametrize("version", range(7))
def test_deletetopics_is_charged_in_every_version(version: int) -> None:
    cluster = Cluster(sizes={"a": 12, "b": 1})
    assert cluster.ask(0, Delete(("a",), version)).error_codes == (OK,)
    answer = cluster.ask(0, Delete(("b",), version))
    assert answer.error_codes == ((THROTTLED,) if version >= 5 else (OK,))
    assert answer.throttle_ms == (0 if version < 1 else 3000 if version < 5 else 2000)


def test_the_example_of_kip_599_is_throttled_as_described() -> None:
    """KIP-599: quota 5, 100 samples of a second; 7 topics of 80 partitions, then others."""
    cluster = Cluster(table=limited(5.0), samples=100)
    seven = Create(tuple(Topic(f"t{number}", 80) for number in range(7)))
    answer = cluster.ask(0, seven)
    assert (set(answer.error_codes), answer.throttle_ms) == ({OK}, 0)
    assert cluster.tokens == -60
    refused = cluster.ask(0, Create((Topic("next", 80),)))
    assert (refused.error_codes, refused.throttle_ms) == ((THROTTLED,), 12_000)
    assert cluster.ask(11_999, Create((Topic("next", 80),))).error_codes == (THROTTLED,)
    assert cluster.ask(12_001, Create((Topic("next", 80),))).error_codes == (OK,)


# Partial admission


def test_topics_are_admitted_and_answered_in_the_requests_order() -> None:
    cluster = Cluster(sizes={"there": 1})
    asked = Create((Topic("a", 8), Topic("there", 1), Topic("b", 8), Topic("c", 1), Topic("n/w", 1)))
    answer = cluster.ask(0, asked)
    assert [(one.name, one.error_code) for one in answer.results] == [
        ("a", OK),
        ("there", EXISTS),
        ("b", OK),
        ("c", THROTTLED),
        ("n/w", INVALID_TOPIC),
    ]
    assert answer.throttle_ms == 6000
    (forwarded,) = cluster.mutations()
    assert isinstance(forwarded, CreateTopicsRequest)
    assert [topic.name for topic in forwarded.topics] == ["a", "there", "b", "n/w"]


def test_tokens_of_topics_that_the_broker_refuses_admit_throttled_topics() -> None:
    cluster = Cluster()
    bad, good = Topic("bad", 12, configs={"no": "such"}), Topic("good", 2)
    answer = cluster.ask(0, Create((bad, good)))
    assert [(one.name, one.error_code) for one in answer.results] == [("bad", CONFIG), ("good", OK)]
    assert (answer.throttle_ms, cluster.tokens) == (0, BURST - 2)
    assert len(cluster.mutations()) == 2


def test_the_number_of_retried_mutation_rounds_is_bounded() -> None:
    cluster = Cluster()
    topics = tuple(Topic(f"bad{number}", 12, configs={"no": "such"}) for number in range(100))
    answer = cluster.ask(0, Create(topics))
    assert len(answer.results) == 100
    assert set(answer.error_codes) <= {CONFIG, THROTTLED}
    assert len(cluster.mutations()) <= ROUNDS_MAX + 1  # validate-only questions included
    assert cluster.tokens == BURST


def test_mutations_at_a_broker_that_is_not_the_controller_are_refunded() -> None:
    cluster = Cluster(sizes={"t": 2})
    cluster.controller.controller = False
    for mutation in (
        Create((Topic("a", 4),)),
        Create((Topic("a", 4),), 4),
        Grow((("t", 4),)),
        Delete(("t",)),
    ):
        assert cluster.ask(0, mutation).error_codes == (NOT_CONTROLLER,)
    assert cluster.tokens == BURST
    cluster.controller.controller = True
    cluster.ask(0, Create((Topic("a", 4),)))
    assert cluster.tokens == BURST - 4


def test_a_broker_that_is_not_the_controller_is_asked_once_for_all_topics() -> None:
    cluster = Cluster()
    cluster.controller.controller = False
    answer = cluster.ask(0, Create(tuple(Topic(f"t{number}", 12) for number in range(30))))
    assert (set(answer.error_codes), answer.throttle_ms) == ({NOT_CONTROLLER}, 0)
    assert len(cluster.mutations()) == 1
    assert cluster.tokens == BURST


def test_a_mutation_that_the_brokers_version_cannot_encode_is_not_forwarded() -> None:
    spoken = everything()
    spoken[ApiKey.CREATE_TOPICS] = VersionRange(0, 3)
    cluster = Cluster(spoken, uplift=True)
    topics = (Topic("a", 2), Topic("b", 12, configs={"no": "such"}), Topic("c", -1))
    assert set(cluster.ask(0, Create(topics, version=6)).error_codes) == {ErrorCode.UNSUPPORTED_VERSION}
    assert (cluster.mutations(), cluster.tokens) == ([], BURST)


def test_a_grown_topics_id_is_known_before_metadata_shows_it() -> None:
    cluster = Cluster()
    cluster.ask(0, Create((Topic("t", 2),)))
    cluster.ask(0, Grow((("t", 4),)))
    topic_id = cluster.controller.topics["t"].topic_id
    cluster.controller.lag.add("t")
    cluster.ask(0, Delete((topic_id,)))
    assert cluster.tokens == BURST - 4 - 4


def test_a_topic_of_default_size_is_charged_in_full_once_metadata_shows_it() -> None:
    cluster = Cluster()
    cluster.controller.tells_configs, cluster.controller.num_partitions = False, 6
    cluster.controller.lag.add("a")
    cluster.ask(0, Create((Topic("a", -1),), version=4))
    cluster.controller.lag.clear()
    cluster.ask(0, Create((Topic("b", 1),), version=4))
    assert cluster.tokens == BURST - 6 - 1


def test_a_topic_creation_that_timed_out_stays_charged() -> None:
    cluster = Cluster()
    cluster.controller.timed_out = {"slow"}
    assert cluster.ask(0, Create((Topic("slow", 4),))).error_codes == (TIMED_OUT,)
    assert cluster.tokens == BURST - 4


@pytest.mark.parametrize("brokers_ms", [0, 4999, 5001])
@pytest.mark.parametrize("version", [4, 7])
def test_the_longer_mutation_throttle_time_is_reported_and_weirs_is_enforced(
    brokers_ms: int, version: int
) -> None:
    cluster = Cluster()
    cluster.controller.throttle_ms = brokers_ms
    cluster.ask(0, Create((Topic("a", BURST + 5),)))
    connection = cluster.connect()
    asked = Create((Topic("a/", 0), Topic("b", 0), Topic("c", 0)), version)
    (frame,) = connection.send(0, asked.frame("app"))
    assert asked.answer(frame).throttle_ms == brokers_ms  # all fail by themselves: nothing of ours
    asked = Create((Topic("n/w", 1), Topic("d", 1)), 7)
    (frame,) = connection.send(0, asked.frame("app"))
    assert asked.answer(frame).throttle_ms == max(brokers_ms, 5000)
    assert connection.connection.throttled_until_ms == 5000
    assert connection.connection.throttled_by is QuotaKey.CONTROLLER_MUTATION_RATE
    assert connection.send(4999, asked.frame("app")) == []
    assert len(connection.send(5000)) == 1


# The number of partitions that is the broker's default


@pytest.mark.parametrize("node_id", [NODE, None])
@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("version", [1, 4, 7])
def test_default_partition_counts_are_queried_or_counted_afterwards(
    node_id: int | None, version: int, *, tells: bool
) -> None:
    cluster = Cluster()
    cluster.controller.tells_configs, cluster.controller.num_partitions = tells, 6
    asked = Create((Topic("a", -1), Topic("b", -1)), version)
    (frame,) = cluster.connect(node_id).send(0, asked.frame("app"))
    assert asked.answer(frame).error_codes == (OK, OK)
    assert cluster.tokens == BURST - 12
    questions = cluster.controller.asked_of(DescribeConfigsRequest)
    assert len(questions) == (node_id is not None)


# Which Metadata is asked


@pytest.mark.parametrize("newest", [1, 3, 4, 8, 9, 10, 11, 12])
@pytest.mark.parametrize("by_id", [False, True])
def test_partition_counts_are_found_at_brokers_of_every_release(newest: int, *, by_id: bool) -> None:
    spoken = everything() | {int(ApiKey.METADATA): VersionRange(0, newest)}
    if by_id and newest < 10:
        return  # topics have no ids there
    cluster = Cluster(spoken, sizes={"t": 4, "other": 9})
    topic = cluster.controller.topics["t"].topic_id if by_id else "t"
    assert cluster.ask(0, Delete((topic,), 6 if newest >= 10 else 3)).error_codes == (OK,)
    assert cluster.tokens == BURST - 4
    asked = cluster.controller.messages_of(MetadataRequest)
    for message, version in zip(asked, cluster.controller.asked_of(MetadataRequest), strict=True):
        assert version >= 4 or message.topics is None, "asking by name would create the topic"
        assert version < 4 or not message.allow_auto_topic_creation


# Whose quota


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_mutation_goes_on_if_its_quota_changes_or_its_budget_is_forgotten(is_forgotten: bool) -> None:
    cluster = Cluster(sizes={"t": 4})
    wire = Wire(new_connection(quotas=cluster.quotas, plans=cluster.plans, node_id=NODE))
    asked = Delete(("t",))
    wire.feed(0, client=asked.frame("app"))
    if is_forgotten:
        assert sum(cluster.quotas.expire(10_000_000)) == 1
    else:
        put_in_force(cluster.quotas, limited(None))
    while wire.to_broker:
        (frame,) = split(bytes(wire.to_broker))
        wire.to_broker.clear()
        wire.feed(10_000_000, broker=cluster.controller.answer(frame))
    assert asked.answer(bytes(wire.to_client)).error_codes == (OK,)
    put_in_force(cluster.quotas, limited(RATE))
    assert cluster.quotas.mutations.budget("ANONYMOUS", "app", 0) is not None


@pytest.mark.parametrize("release", [(0, 10, 2), (1, 1), (2, 8)], ids=str)
def test_uplift_returns_error_89_in_front_of_an_old_broker(release: tuple[int, ...]) -> None:
    broker = {key: one for key, one in broker_of(release).items() if key in everything()}
    cluster = Cluster(broker, uplift=True)
    assert cluster.ask(0, Create((Topic("a", BURST + 2),), 6)).error_codes == (OK,)
    answer = cluster.ask(0, Create((Topic("b", 1),), 6))
    assert (answer.error_codes, answer.throttle_ms) == ((THROTTLED,), 2000)
    assert cluster.ask(2001, Create((Topic("b", 1),), 6)).error_codes == (OK,)
    assert cluster.ask(9000, Delete(("a", "b"), 5)).error_codes == (OK, THROTTLED)
