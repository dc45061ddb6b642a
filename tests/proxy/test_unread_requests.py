"""Requests with bytes left over, and requests that cannot be read: Weir judges both as a broker does."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.kfake.cluster import everything
from tests.kfake.controller import NODE, Controller
from tests.kfake.direct import Client
from tests.mutations.requests import Create, Delete, Grow, Topic
from tests.protocol.generate import SAMPLE_ID, sample
from tests.proxy.client_quotas import Managed
from tests.proxy.playbook import Playbook
from tests.proxy.wire import APP, Wire, new_connection
from tests.wire.frames import framed, header, request
from weir.protocol.api import ApiKey, request_header_version
from weir.protocol.codec import request_type
from weir.protocol.messages import ApiVersionsRequest, ProduceRequest
from weir.protocol.values import Message, schema_of
from weir.protocol.versions import VersionRange
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.in_flight import CHARGED
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.client_quotas import mutation_rates

LEFT_OVER: Final = b"\x01\x00\x00 left over"
ALL_TOPICS_OF_LIBRDKAFKA: Final = bytes.fromhex("00000000010000")
"""How librdkafka 2.16.0 asks for all topics in Metadata v12: it writes four bytes for a null array, the first
of which is one; the others are read as the two booleans and the count of tags. Three bytes are left over.
"""
EVERY_QUOTA: Final = {
    (APP, QuotaKey.PRODUCER_BYTE_RATE): 1e9,
    (APP, QuotaKey.CONSUMER_BYTE_RATE): 1e9,
    (APP, QuotaKey.REQUEST_PERCENTAGE): 1e4,
    (APP, QuotaKey.CONTROLLER_MUTATION_RATE): 1e6,
}
TOPIC_RATES: Final = {
    (Entity(topic="a"), QuotaKey.PRODUCER_BYTE_RATE): 1e9,
    (Entity(topic="a"), QuotaKey.CONSUMER_BYTE_RATE): 1e9,
}
READ: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.SHARE_FETCH,
    ApiKey.METADATA,
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_TOPICS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
)
"""The APIs whose requests Weir looks into."""
TRANSLATED: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_TOPICS,
    ApiKey.FIND_COORDINATOR,
)
"""The APIs whose requests uplift may have to translate."""
OF_ITS_OWN: Final = tuple(
    key for key in READ if key not in (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS)
)
"""Those that it does not answer itself."""


def versions_of(*keys: ApiKey) -> list[Any]:
    return [
        pytest.param(key, version, id=f"{key.name.lower()}-{version}")
        for key in keys
        for version in schema_of(request_type(key)).versions
    ]


def connection_of(*, old_broker: bool = False) -> Connection:
    """A connection under every quota; or under none, before an old broker."""
    if old_broker:
        oldest: dict[int, VersionRange] = dict.fromkeys(TRANSLATED, VersionRange(0, 0))
        spoken = everything() | oldest
        return new_connection(plans=Plans(Counters(), uplift=True).for_broker(spoken), node_id=NODE)
    connection = new_connection(
        QuotaTable(EVERY_QUOTA | TOPIC_RATES), plans=Plans(Counters(), manages_quotas=True), node_id=NODE
    )
    connection.cluster.names_by_id.learn(SAMPLE_ID.bytes, b"a")
    connection.plans.quota_admin, connection.client.peer = Managed(), "192.0.2.1:5000"
    return connection


def message_of(api_key: ApiKey, version: int) -> Message:
    """A request with something in every field; of Produce, one for a topic with a rate."""
    message = sample(request_type(api_key), version)
    if isinstance(message, ProduceRequest):
        message.acks = 1
        message.topic_data[0].name = "a" if version < 13 else ""
    return message


def judged(api_key: ApiKey, version: int, tail: bytes, *, old_broker: bool = False) -> tuple[object, ...]:
    """What becomes of a request with this tail; but for the tail itself, and the length of the frame."""
    connection = connection_of(old_broker=old_broker)
    frame = framed(request(message_of(api_key, version), version)[4:] + tail)
    wire = Wire(connection)
    wire.feed(0, client=frame)
    sent, in_flight = bytes(wire.to_broker), connection.in_flight
    if tail and in_flight and in_flight[0].state <= CHARGED:
        assert len(sent) == len(frame)
        assert sent.endswith(tail)
        sent = framed(sent[4 : -len(tail)])
    waiting = [
        (under_way.plan.api_key, under_way.plan.version, under_way.ledger is not None)
        for under_way in in_flight
    ]
    topics = connection.quotas.topics
    charged = 0.0 if topics is None else sum(budget.charged for budget in topics.produce.budgets())
    assert (charged > 0) == (api_key == ApiKey.PRODUCE and topics is not None)
    assert not connection.counters.requests_unread
    return sent, bytes(wire.to_client), waiting, connection.state, connection.effects.close_reason, charged


def test_librdkafka_asks_for_all_topics_under_a_mutation_quota() -> None:
    asked = framed(header(ApiKey.METADATA, 12, 1, b"app", tags=b"\0") + ALL_TOPICS_OF_LIBRDKAFKA)
    with Playbook(QuotaTable(EVERY_QUOTA)) as play:
        play.forwards(asked)
        assert not play.connection.counters.requests_unread


@pytest.mark.parametrize(("api_key", "version"), versions_of(*READ))
def test_bytes_left_over_change_nothing_and_go_to_the_broker(api_key: ApiKey, version: int) -> None:
    without, with_tail = judged(api_key, version, b""), judged(api_key, version, LEFT_OVER)
    assert with_tail == without
    assert without[0] or without[1], "it was forwarded, asked about, or answered"


@pytest.mark.parametrize(("api_key", "version"), versions_of(*TRANSLATED))
def test_bytes_left_over_change_nothing_under_uplift(api_key: ApiKey, version: int) -> None:
    without = judged(api_key, version, b"", old_broker=True)
    assert judged(api_key, version, LEFT_OVER, old_broker=True) == without


MUTATIONS: Final = [
    *(Create((Topic("new", 4), Topic("other", 2)), version=version) for version in (2, 5, 7)),
    *(Grow((("there", 5),), version=version) for version in (1, 2, 3)),
    *(Delete(("there",), version=version) for version in (1, 4, 6)),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{type(one).__name__}-{one.version}")
def test_junk_behind_a_mutation_buys_no_partitions(mutation: Create | Grow | Delete) -> None:
    left = []
    for tail in (b"", LEFT_OVER):
        controller = Controller()
        controller.add("there", 3)
        quotas = BrokerQuotas.create(
            QuotaTable({(APP, QuotaKey.CONTROLLER_MUTATION_RATE): 1.0}), mutations=mutation_rates(10, 1)
        )
        connection = new_connection(
            quotas=quotas, plans=Plans(Counters(), cluster=ClusterState()), node_id=NODE
        )
        (frame,) = Client(connection, controller).send(0, framed(mutation.frame("app")[4:] + tail))
        budget = quotas.mutations.budget("ANONYMOUS", "app", 0)
        assert budget is not None
        left.append((frame, controller.sizes(), budget.tokens(0)))
    assert left[0] == left[1]
    assert left[0][2] < 10, "it was charged"


# What cannot be read


@pytest.mark.parametrize(("api_key", "version"), versions_of(*OF_ITS_OWN))
@settings(max_examples=5)
@given(garbage=st.binary(max_size=80))
def test_garbage_never_closes_the_connection(api_key: ApiKey, version: int, garbage: bytes) -> None:
    if api_key == ApiKey.PRODUCE:  # acks tell whether the broker answers: they can be read
        whole = request(ProduceRequest(acks=1), version)
        start = len(framed(header(0, version, 1, b"app", tags=b"\0" if version >= 9 else None)))
        acks = start + (0 if version < 3 else 1 if version >= 9 else 2)
        frame = framed(whole[4 : acks + 6] + garbage)
    else:
        flexible = request_header_version(api_key, version) == 2
        frame = framed(header(api_key, version, 1, b"app", tags=b"\0" if flexible else None) + garbage)
    connection = connection_of()
    wire = Wire(connection)
    with capture_logs():
        wire.feed(0, client=frame)
    if connection.effects.close_reason is not None:  # it happens to be a request with too many tagged fields
        assert connection.effects.close_reason is CloseReason.REQUEST_TOO_LARGE
        return
    if connection.in_flight[0].state > CHARGED:
        return  # it happens to be a request
    assert len(wire.to_broker) == len(frame)
    if api_key not in (ApiKey.FETCH, ApiKey.SHARE_FETCH):  # of these max_bytes may have been patched
        assert bytes(wire.to_broker) == frame


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (ApiKey.METADATA, 12),
        (ApiKey.CREATE_TOPICS, 7),
        (ApiKey.CREATE_PARTITIONS, 3),
        (ApiKey.DELETE_TOPICS, 6),
    ],
)
def test_a_request_that_ends_in_the_middle_is_passed_counted_and_logged(
    api_key: ApiKey, version: int
) -> None:
    whole = request(sample(request_type(api_key), version), version)
    cut = framed(whole[4:-4])
    connection = connection_of()
    with capture_logs() as logged, Playbook(connection=connection) as play:
        for _ in range(11):
            play.forwards(cut)
    assert connection.counters.requests_unread == {api_key: 11}
    told = [line for line in logged if line["event"] == "requests passed unread"]
    assert [line["count"] for line in told] == [1, 10]
    assert told[0]["api"] == schema_of(request_type(api_key)).name.removesuffix("Request")


def test_text_that_cannot_be_written_anew_closes_under_a_mutation_quota() -> None:
    """A broker reads it and replaces each byte by three: Weir cannot ask for the request's other topics."""
    name = b"\xff" * 20_000
    size = len(name) + 1
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    body = b"\x02" + length + name + b"\0\0\0\1" + b"\0\1" + b"\1\1\0" + bytes(4) + b"\0\0"
    asked = framed(header(ApiKey.CREATE_TOPICS, 7, 1, b"app", tags=b"\0") + body)
    with Playbook(QuotaTable(EVERY_QUOTA)) as play:
        play.client(asked)
        play.violation(CloseReason.REQUEST_MALFORMED, saying="not UTF-8")


def test_a_request_that_streams_by_and_makes_no_sense_is_counted_once_and_goes_on() -> None:
    """The topic's name is null, behind 1000 topics that can be read."""
    topics = [ProduceRequest.TopicProduceData(name=f"{number}") for number in range(1000)]
    frame = bytearray(request(ProduceRequest(acks=1, topic_data=topics), 9))
    frame[frame.index(b"\x04999")] = 0
    connection = connection_of()
    wire = Wire(connection)
    with capture_logs():
        for start in range(0, len(frame), 1000):
            wire.feed(0, client=bytes(frame[start : start + 1000]))
    assert bytes(wire.to_broker) == frame
    assert connection.effects.close_reason is None
    assert connection.counters.requests_unread == {ApiKey.PRODUCE: 1}


def test_a_version_of_apiversions_that_weir_answers_is_understood() -> None:
    """A client of a newer Kafka goes on with what the answer in version 0 says."""
    asked = framed(
        header(ApiKey.API_VERSIONS, 6, 1, b"app", tags=b"\0") + request(ApiVersionsRequest(), 4)[-3:]
    )
    with Playbook() as play:
        play.client(asked)
        assert play.wire.to_client[8:10] == b"\0\x23", "error 35"
        play.wire.to_client.clear()
        assert play.connection.counters.requests_not_understood == 0
