"""Weir's own topics on the wire: refused changes, by name and by id, in every version; other topics are
served. Responses are read with kio where it knows the version.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest
from kio.serial import entity_reader
from structlog.testing import capture_logs

from tests.kfake.controller import Controller
from tests.kfake.direct import Client
from tests.matrix import check_each
from tests.mutations.requests import Delete
from tests.protocol.kio_side import kio_class
from tests.proxy.mutation_cluster import limited, quotas_of
from tests.proxy.wire import Wire, new_connection, quota_table
from tests.wire.frames import body_of, request, response, split, unknown_request
from tests.wire.messages import id_of, ping, pong, produce_to, produced
from tests.wire.smallest import least
from weir import protocol
from weir.protocol import messages as m
from weir.protocol.api import ApiKey, response_header_version, versions
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.messages import Message
from weir.protocol.schema import Layout
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import CHANGES_OF_TOPICS, Plans
from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics
from weir.quotas import Entity, QuotaKey, QuotaTable

OURS, THEIRS = "__weir_quotas", "orders"
REFUSED: Final = 29
"""TOPIC_AUTHORIZATION_FAILED."""
CLUSTER_AUTHORIZATION_FAILED: Final = 31
SCHEMAS: Final = Path(protocol.__path__[0]) / "schemas"
SMALL_BUFFER = 4096
NAMES: Final = {
    id_of(name): name for name in (OURS, THEIRS, "a", "b", OURS + "x", OURS[:-1], "x" * len(OURS))
}
"""Topics whose ids connections know."""
STRUCT: Final = "__struct_fields__"
"""Names of a msgspec struct's fields."""


def connection(
    *admins: str,
    protected: tuple[str, ...] = (OURS,),
    table: QuotaTable | None = None,
    buffer_bytes: int = 256 * 1024,
) -> Connection:
    plans = Plans(Counters(), protected=ProtectedTopics(protected, admins))
    session = new_connection(table, plans=plans, buffer_bytes=buffer_bytes)
    for topic_id, name in NAMES.items():
        session.cluster.names_by_id.learn(topic_id.bytes, name.encode())
    return session


# Requests that change topics, and a broker's responses

CHANGES: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_RECORDS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ELECT_LEADERS,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
)
NAMING: Final = ("name", "topic", "topic_name", "resource_name")
"""Fields of topics' names."""
CHOSEN: Final = {"resource_type": 2, "election_type": 1}
"""Values that make a change one of topics: a resource is a topic, an election is unclean."""


def about(message: type[Message], version: int, *names: str) -> Message:
    """Return a message about these topics: an element for each in arrays of topics, one in other arrays."""
    found: Message = _about(message, message, codec(message, version).layout, names)
    return found


def _about(message: type[Message], built: type[Any], layout: Layout, names: tuple[str, ...]) -> Any:
    values: dict[str, object] = {}
    for slot in layout.fields:
        if slot.struct is not None and slot.is_array and slot.name not in ("configs", "assignments"):
            each = any(inner.name in NAMING for inner in slot.struct.fields)
            chosen = [(name,) for name in names] if each else [names]
            kind = getattr(message, slot.type)
            values[slot.name] = [_about(message, kind, slot.struct, one) for one in chosen]
        elif slot.is_array and slot.struct is None:
            values[slot.name] = [*names] if slot.type == "string" else [0]
        elif slot.name in NAMING:
            values[slot.name] = names[0]
        elif slot.name in CHOSEN:
            values[slot.name] = CHOSEN[slot.name]
    return msgspec.structs.replace(least(message, built, layout), **values)


BETWEEN_BROKERS: Final[dict[int, Message]] = {
    ApiKey.LEADER_AND_ISR: m.LeaderAndIsrRequest(),
    ApiKey.STOP_REPLICA: m.StopReplicaRequest(),
    ApiKey.UPDATE_METADATA: m.UpdateMetadataRequest(),
    ApiKey.ALTER_PARTITION: m.AlterPartitionRequest(),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: m.AssignReplicasToDirsRequest(),
}


CHANGES_NO_TOPIC: Final = frozenset(
    {
        # read records, offsets and descriptions
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_ACLS,
        # may create a missing topic, while Weir's exist
        ApiKey.METADATA,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        # change groups, not topics
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        # change permissions: none permits a change through Weir
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        # name the controllers' own topic
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.FETCH_SNAPSHOT,
    }
)


def _refusal(api_key: int) -> int:
    """Error code that the brokers' own authorization uses for an API."""
    cluster = api_key in (ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_REPLICA_LOG_DIRS)
    return CLUSTER_AUTHORIZATION_FAILED if cluster else REFUSED


def _asked(case: tuple[int, int], *names: str) -> bytes:
    api_key, version = case
    return request(about(request_type(api_key), version, *names), version, 7)


def _changes() -> list[tuple[int, int]]:
    """Every version of every API in `CHANGES`; ElectLeaders v0 has preferred elections only."""
    cases = [(key, version) for key in CHANGES for version in versions(key) or ()]
    return [case for case in cases if case != (ApiKey.ELECT_LEADERS, 0)]


def codes(frame: bytes, api_key: int, version: int) -> list[tuple[str, int]]:
    """(topic, error code) of each result in a response, as kio reads it; as Weir does where kio lacks the
    version. In kio's classes and Weir's alike, a result's fields come after its topic's name.
    """
    theirs = kio_class(api_key, "response", version)
    if theirs is None:
        return sorted(_codes(body_of(frame, response_type(api_key), version)))
    start = 8 + (response_header_version(api_key, version) == 1)
    found, _size = entity_reader(theirs)(frame, start)
    return sorted(_codes(found))


def _codes(value: Any, topic: str = "") -> list[tuple[str, int]]:
    if isinstance(value, list | tuple):
        return [code for one in value for code in _codes(one, topic)]
    names = [field.name for field in fields(value)] if is_dataclass(value) else getattr(value, STRUCT, ())
    values = {name: getattr(value, name) for name in names}
    topic = NAMES.get(values.get("topic_id"), topic)  # type: ignore[arg-type]  # None is no id
    topic = next(
        (str(values[n]) for n in ("name", "topic", "topic_name", "resource_name") if values.get(n)), topic
    )
    found = [(topic, int(values[n])) for n in ("error_code", "partition_error_code") if topic and n in values]
    return found + [code for inner in values.values() for code in _codes(inner, topic)]


# Changes


def test_every_api_that_names_topics_is_guarded_or_changes_no_topic() -> None:
    schemas = [json.loads(path.read_bytes()) for path in sorted(SCHEMAS.glob("[0-9]*.json"))]
    naming = {
        ApiKey(schema["api_key"])
        for schema in schemas
        if re.search("topic|resource_name|resource_type", json.dumps(schema["request"]))
    }
    assert len(schemas) == len(ApiKey)
    assert naming - set(CHANGES_OF_TOPICS) == CHANGES_NO_TOPIC


def test_a_protected_topic_is_refused_and_others_of_the_request_are_changed() -> None:
    def check(case: tuple[int, int]) -> None:
        api_key, version = case
        answer = about(response_type(api_key), version, THEIRS)
        wire = Wire(connection())
        wire.feed(0, client=_asked(case, OURS, THEIRS))
        assert bytes(wire.to_broker) == _asked(case, THEIRS)
        wire.feed(0, broker=response(answer, version, 7))
        refused, *served = codes(bytes(wire.to_client), api_key, version)
        assert (refused, set(served)) == ((OURS, _refusal(api_key)), {(THEIRS, 0)})
        wire.feed(0, client=ping(8))
        wire.feed(0, broker=pong(8))
        assert bytes(wire.to_client).endswith(pong(8))

    check_each(_changes(), check)


def test_admins_and_brokers_change_protected_topics() -> None:
    def check(case: tuple[int, int]) -> None:
        frame = _asked(case, OURS, THEIRS)
        for who in ("admin", "broker"):
            session = connection(*(["ANONYMOUS"] if who == "admin" else []))
            session.plans.identities.brokers = frozenset() if who == "broker" else None
            wire = Wire(session)
            wire.feed(0, client=frame)
            assert bytes(wire.to_broker) == frame, who

    check_each(_changes(), check)


def test_requests_for_other_topics_are_forwarded_unchanged() -> None:
    def check(case: tuple[int, int]) -> None:
        wire = Wire(connection())
        frame = _asked(case, THEIRS, OURS + "_not")
        wire.feed(0, client=frame[:20])
        wire.feed(0, client=frame[20:])
        assert bytes(wire.to_broker) == frame

    check_each(_changes(), check)


def test_markers_of_one_producer_have_one_result_with_refused_and_written_topics() -> None:
    """Kafka's WriteTxnMarkersResponse.errorsByProducerId keeps one result for each producer."""
    asked: Any = about(m.WriteTxnMarkersRequest, 1, THEIRS, OURS)
    told: Any = about(m.WriteTxnMarkersResponse, 1, THEIRS)
    (both,) = asked.markers
    both.producer_id = told.markers[0].producer_id = 8
    asked.markers.append(msgspec.structs.replace(both, producer_id=9, topics=both.topics[-1:]))
    wire = Wire(connection())
    wire.feed(0, client=request(asked, 1, 7))
    wire.feed(0, broker=response(told, 1, 7))
    answer = body_of(bytes(wire.to_client), m.WriteTxnMarkersResponse, 1)
    found = {
        marker.producer_id: [(topic.name, topic.partitions[0].error_code) for topic in marker.topics]
        for marker in answer.markers
    }
    ours = (OURS, CLUSTER_AUTHORIZATION_FAILED)
    assert (len(answer.markers), found) == (2, {8: [(THEIRS, 0), ours], 9: [ours]})


def test_requests_between_brokers_are_refused_while_topics_are_protected() -> None:
    def check(case: tuple[int, int]) -> None:
        api_key, version = case
        frame = request(BETWEEN_BROKERS[api_key], version, 7)
        wire = Wire(connection())
        wire.feed(0, client=frame)
        assert not wire.to_broker
        answer: Any = body_of(bytes(wire.to_client), response_type(api_key), version)
        assert answer.error_code == CLUSTER_AUTHORIZATION_FAILED
        broker = connection()
        broker.plans.identities.brokers = frozenset()
        for session in (connection("ANONYMOUS"), broker, connection(protected=())):
            wire = Wire(session)
            wire.feed(0, client=frame)
            assert bytes(wire.to_broker) == frame

    check_each([(key, version) for key in BETWEEN_BROKERS for version in versions(key) or ()], check)


def test_preferred_elections_pass_and_unclean_elections_of_all_topics_are_refused() -> None:
    for version in (1, 2):
        preferred = request(m.ElectLeadersRequest(election_type=0, topic_partitions=None), version)
        unclean = request(m.ElectLeadersRequest(election_type=1, topic_partitions=None), version, 2)
        wire = Wire(connection())
        wire.feed(0, client=preferred)
        assert bytes(wire.to_broker) == preferred
        wire.feed(0, broker=response(m.ElectLeadersResponse(), version))
        wire.feed(0, client=unclean)
        assert bytes(wire.to_broker) == preferred
        refusal = response(m.ElectLeadersResponse(error_code=REFUSED), version, 2)
        assert split(bytes(wire.to_client))[1] == refusal


def test_a_transaction_gets_a_protected_topic_and_its_other_topics_not() -> None:
    """A broker adds all partitions or none: OPERATION_NOT_ATTEMPTED (55) for the others."""
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = [topic(name=OURS, partitions=[0]), topic(name=THEIRS, partitions=[0, 1])]

    def check(version: int) -> None:
        if version < 4:
            asked = m.AddPartitionsToTxnRequest(v3_and_below_transactional_id="t", v3_and_below_topics=topics)
        else:
            one = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id="t", topics=topics
            )
            asked = m.AddPartitionsToTxnRequest(transactions=[one])
        frame = request(asked, version)
        wire = Wire(connection())
        wire.feed(0, client=frame)
        assert bytes(wire.to_broker) == b""
        found = codes(bytes(wire.to_client), ApiKey.ADD_PARTITIONS_TO_TXN, version)
        assert found == [(OURS, REFUSED), (THEIRS, 55), (THEIRS, 55)]
        wire = Wire(connection("ANONYMOUS"))
        wire.feed(0, client=frame)
        assert bytes(wire.to_broker) == frame

    check_each(range(6), check)


# By id


class Cluster:
    """A controller behind a Weir that protects one of its topics."""

    def __init__(self, *admins: str, table: QuotaTable | None = None) -> None:
        self.controller = Controller()
        self.ours = self.controller.add(OURS, 1).topic_id
        self.theirs = self.controller.add(THEIRS, 3).topic_id
        plans = Plans(Counters(), protected=ProtectedTopics((OURS,), admins))
        self.session = new_connection(plans=plans, quotas=quotas_of(table or QuotaTable()))
        self.client = Client(self.session, self.controller)

    def delete(self, *what: str | UUID) -> list[tuple[str | None, int]]:
        asked = Delete(what)
        (frame,) = self.client.send(0, asked.frame("app"))
        return [(one.name, one.error_code) for one in asked.answer(frame).results]


def test_a_protected_topic_is_not_deleted_by_its_id() -> None:
    cluster = Cluster()
    assert sorted(map(str, cluster.delete(cluster.ours, cluster.theirs))) == [
        f"('{OURS}', {REFUSED})",
        f"('{THEIRS}', 0)",
    ]
    assert list(cluster.controller.topics) == [OURS]


def test_a_protected_topics_id_is_refused_under_another_name() -> None:
    """A broker refuses an entry with a name and an id; Weir does not rely on that."""
    cluster = Cluster()
    state = m.DeleteTopicsRequest.DeleteTopicState(name=THEIRS, topic_id=cluster.ours)
    cluster.client.send(0, request(m.DeleteTopicsRequest(topics=[state]), 6))
    assert list(cluster.controller.topics) == [OURS, THEIRS]
    assert not cluster.controller.asked_of(m.DeleteTopicsRequest)


def test_remaining_topics_of_a_large_request_are_charged_to_the_mutation_quota() -> None:
    """Weir decodes a request of more than 1 KB by a query."""
    cluster = Cluster(table=limited())
    cluster.delete(OURS, THEIRS, *(f"{'missing' * 20}-{number}" for number in range(20)))
    budget = cluster.session.quotas.mutations.budget("ANONYMOUS", "app", 0)
    assert budget is not None
    assert budget.tokens(0) == 10 - 3
    assert list(cluster.controller.topics) == [OURS]


def test_a_version_that_weir_does_not_know_closes_the_connection_while_topics_are_protected() -> None:
    for api_key in CHANGES_OF_TOPICS:
        session = connection()
        Wire(session).feed(0, client=unknown_request(api_key, 99))
        assert session.effects.close_reason is CloseReason.REQUEST_VERSION_UNKNOWN, api_key


# Produce

PRODUCE_VERSIONS: Final = range(14)


def test_records_for_a_protected_topic_are_refused_with_all_topics_of_their_request() -> None:
    def check(version: int) -> None:
        for topics in ((OURS,), (OURS, THEIRS), (THEIRS, OURS), ("a", "b", OURS)):
            wire = Wire(connection())
            frame = produce_to(5, version=version, **dict.fromkeys(topics, 100))
            for start in range(0, len(frame), 40):
                wire.feed(0, client=frame[start : start + 40])
            assert bytes(wire.to_broker) == b""
            expected = sorted((topic, REFUSED) for topic in topics)
            assert codes(bytes(wire.to_client), 0, version) == expected
            wire.feed(0, client=ping(8))
            wire.feed(0, broker=pong(8))
            assert bytes(wire.to_client).endswith(pong(8))

    check_each(PRODUCE_VERSIONS, check)


def test_records_for_other_topics_are_forwarded_and_so_are_an_admins() -> None:
    def check(version: int) -> None:
        for topics in ((THEIRS,), (THEIRS, "b"), (), (OURS + "x",), (OURS[:-1],)):
            wire = Wire(connection())
            frame = produce_to(5, version=version, **dict.fromkeys(topics, 100))
            for start in range(0, len(frame), 40):
                wire.feed(0, client=frame[start : start + 40])
            assert bytes(wire.to_broker) == frame
        for topics in ((OURS,), (THEIRS, OURS)):
            wire = Wire(connection("ANONYMOUS"))
            frame = produce_to(5, version=version, **dict.fromkeys(topics, 100))
            wire.feed(0, client=frame)
            assert bytes(wire.to_broker) == frame

    check_each(PRODUCE_VERSIONS, check)


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("others", [(), ("a", "b")])
@pytest.mark.parametrize("table", [None, quota_table(produce=10**9)])
def test_a_protected_topic_is_refused_after_many_requests_for_other_topics(
    others: tuple[str, ...], table: QuotaTable | None, version: int
) -> None:
    """The parse cache must not let it through: requests differ in the topic only."""
    wire = Wire(connection(table=table))
    sent = b""
    for number in range(3):
        names = ["x" * len(OURS), *others]
        sent += (frame := produce_to(number, version, **dict.fromkeys(names, 10)))
        wire.feed(0, client=frame, broker=b"")
        wire.feed(0, broker=produced(number, version=version))
    wire.feed(0, client=produce_to(7, version, **dict.fromkeys([OURS, *others], 10)))
    assert bytes(wire.to_broker) == sent
    assert set(codes(split(bytes(wire.to_client))[-1], 0, version)) == {(n, REFUSED) for n in (OURS, *others)}


def test_a_long_client_id_does_not_hide_a_protected_topic_from_the_parse_cache() -> None:
    """A beginning that is too long for the cache up to the topic, but not up to acks."""
    client_id = b"c" * 1000

    def frame(topic: str) -> bytes:
        data = m.ProduceRequest.PartitionProduceData(records=b"r")
        topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        return request(m.ProduceRequest(acks=1, topic_data=topics), 7, 1, client_id)

    wire = Wire(connection())
    for _time in range(2):
        wire.feed(0, client=frame("o" * len(OURS)))
        wire.feed(0, broker=produced(1))
    before = bytes(wire.to_broker)
    wire.feed(0, client=frame(OURS))
    assert bytes(wire.to_broker) == before


def test_records_without_acks_for_a_protected_topic_close_the_connection() -> None:
    session = connection()
    wire = Wire(session)
    wire.feed(0, client=produce_to(1, acks=0, **{OURS: 10}))
    assert session.effects.close_reason is CloseReason.TOPIC_PROTECTED
    assert bytes(wire.to_broker) == bytes(wire.to_client) == b""


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("chunk", [1000, 4096, 100_000])
def test_a_protected_topic_behind_the_buffer_never_reaches_the_broker_whole(chunk: int, version: int) -> None:
    frame = produce_to(1, version, a=10_000, b=10_000, **{OURS: 500})
    session = connection(buffer_bytes=SMALL_BUFFER)
    wire = Wire(session)
    for start in range(0, len(frame), chunk):
        wire.feed(0, client=frame[start : start + chunk])
    assert session.effects.close_reason is CloseReason.TOPIC_PROTECTED
    assert len(wire.to_broker) < len(frame) - 500
    assert OURS.encode() not in wire.to_broker
    assert id_of(OURS).bytes not in wire.to_broker
    assert session.counters.protected_refused == {ApiKey.PRODUCE: 1}


@pytest.mark.parametrize("version", [9, 13])
def test_a_long_request_with_many_topics_is_forwarded_and_charged_to_topics_with_rates(version: int) -> None:
    frame = produce_to(1, version, a=30_000, b=30_000)
    table = QuotaTable({(Entity(topic="b"), QuotaKey.PRODUCER_BYTE_RATE): 1000})
    wire = Wire(connection(table=table, buffer_bytes=SMALL_BUFFER))
    for start in range(0, len(frame), 1000):
        wire.feed(0, client=frame[start : start + 1000])
    assert bytes(wire.to_broker) == frame
    wire.feed(0, broker=produced(1, version=version))
    assert bytes(wire.to_client) == produced(1, throttle_ms=20_000, version=version)


def test_refused_records_are_charged_to_the_clients_byte_rate() -> None:
    session = connection(table=quota_table(produce=1000))
    wire = Wire(session)
    frame = produce_to(1, **{OURS: 30_000})
    wire.feed(0, client=frame)
    told = body_of(bytes(wire.to_client), m.ProduceResponse, 9)
    assert told.throttle_time_ms == len(frame) - 4 - 10_000
    assert session.throttled_until_ms == told.throttle_time_ms


def test_a_refused_request_with_thousands_of_partitions_closes_the_connection() -> None:
    data = [m.ProduceRequest.PartitionProduceData(index=n, records=b"r") for n in range(20_000)]
    topics = [m.ProduceRequest.TopicProduceData(name=OURS, partition_data=data)]
    session = connection()
    Wire(session).feed(0, client=request(m.ProduceRequest(acks=1, topic_data=topics), 9))
    assert session.effects.close_reason is CloseReason.TOPIC_PROTECTED


# Records for topic ids whose names are unknown

UNKNOWN_TOPIC_ID: Final = 100


def unnamed(*admins: str, buffer_bytes: int = 256 * 1024) -> Client:
    """A client that may not describe `secret`; the names of all topics are unknown."""
    controller = Controller()
    for name in (OURS, "secret", "a", "b"):
        controller.add(name, topic_id=id_of(name))
    controller.denied.add("secret")
    plans = Plans(Counters(), protected=ProtectedTopics((OURS,), admins))
    return Client(new_connection(plans=plans, buffer_bytes=buffer_bytes), controller)


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_records_for_an_unknown_topic_id_are_forwarded_after_one_question(names: tuple[str, ...]) -> None:
    client = unnamed()
    for number in range(3):
        (frame,) = client.send(0, produce_to(number, 13, **dict.fromkeys(names, 10)))
        assert frame == produced(number, version=13)
    (asked,) = client.cluster.messages_of(m.MetadataRequest)
    assert {topic.topic_id for topic in asked.topics or ()} == {id_of(name) for name in names}


@pytest.mark.parametrize("others", [(), ("a",)])
def test_a_protected_topic_is_refused_by_an_id_that_was_unknown(others: tuple[str, ...]) -> None:
    client = unnamed()
    (frame,) = client.send(0, produce_to(1, 13, **dict.fromkeys((OURS, *others), 10)))
    assert codes(frame, 0, 13) == sorted((name, REFUSED) for name in (OURS, *others))
    assert not client.cluster.asked_of(m.ProduceRequest)


@pytest.mark.parametrize("others", [(), ("a",)])
def test_records_for_a_topic_that_the_client_may_not_describe_are_refused(others: tuple[str, ...]) -> None:
    """By an ACL that denies Describe alone, a broker would take them, and the topic could be Weir's."""
    client = unnamed()
    for now_ms in (0, 500, 1000):
        (frame,) = client.send(now_ms, produce_to(1, 13, **dict.fromkeys(("secret", *others), 10)))
        answer = body_of(frame, m.ProduceResponse, 13)
        found = {topic.topic_id: topic.partition_responses[0].error_code for topic in answer.responses}
        assert found == dict.fromkeys(map(id_of, ("secret", *others)), UNKNOWN_TOPIC_ID)
    assert not client.cluster.asked_of(m.ProduceRequest)
    assert len(client.cluster.asked_of(m.MetadataRequest)) == 2, "once a second"
    admin = unnamed("ANONYMOUS")
    admin.send(0, produce_to(1, 13, **dict.fromkeys(("secret", *others), 10)))
    assert admin.cluster.asked_of(m.ProduceRequest) == [13]


def test_an_unknown_topic_id_behind_the_buffer_closes_one_connection_only() -> None:
    client, frame = unnamed(buffer_bytes=SMALL_BUFFER), produce_to(1, 13, a=20_000, b=500)
    client.wire.feed(0, client=frame)
    client.answer(0)
    assert client.connection.effects.close_reason is CloseReason.TOPICS_UNNAMED
    again = Client(new_connection(plans=client.connection.plans, buffer_bytes=SMALL_BUFFER), client.cluster)
    assert again.send(0, frame) == [produced(1, version=13)]


# Said


def test_refused_and_made_changes_are_in_the_audit_log() -> None:
    session = connection()
    with capture_logs() as lines:
        Wire(session).feed(0, client=produce_to(1, **{OURS: 10}))
        Wire(connection("ANONYMOUS")).feed(0, client=_asked((ApiKey.DELETE_TOPICS, 5), OURS))
    refused, made = [line for line in lines if line.get("log") == "weir.audit"]
    assert (refused["event"], refused["log_level"]) == ("change of protected topics refused", "warning")
    assert (refused["principal"], refused["api"], refused["topics"]) == ("User:ANONYMOUS", "PRODUCE", OURS)
    assert (made["event"], made["api"]) == ("protected topics changed", "DELETE_TOPICS")
    assert session.counters.protected_refused == {ApiKey.PRODUCE: 1}
