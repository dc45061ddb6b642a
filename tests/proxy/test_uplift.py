"""A client that speaks newer versions than its broker: what reaches either, byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.matrix import in_one_test
from tests.protocol.generate import messages
from tests.proxy.broker_versions import broker_of
from tests.proxy.playbook import Playbook
from tests.proxy.uplifted import RAISED, told
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import body_of, head_of, request, request_body_of, response, split
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.errors import EncodeError
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from weir.protocol.scanning.field_offsets import field_offset
from weir.protocol.values import Message
from weir.protocol.versions import VersionRange
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.uplift.uplift_rule import beyond, offered, route

SETTINGS: Final = settings(max_examples=2)


def connection_with(broker: Mapping[int, VersionRange], **kwargs: Any) -> Connection:
    plans = Plans(Counters(), uplift=True)
    return new_connection(plans=plans.for_broker(broker), **kwargs)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def expected_response(answer: Message, key: int, version: int, way: Any) -> Message:
    """What the client is to be told: Weir's addresses, and no throttle time that is over."""
    if isinstance(answer, MetadataResponse | FindCoordinatorResponse):
        answer = weirs(answer)
    if way.broker_waits or field_offset(response_type(key), way.broker_version, "throttle_time_ms") is None:
        answer.throttle_time_ms = 0  # type: ignore[attr-defined]  # every uplifted API has it
    if isinstance(answer, FindCoordinatorResponse) and way.broker_version < 1:
        answer.error_message = None
    if isinstance(answer, CreateTopicsResponse) and way.broker_version < 5 <= version:
        for topic in answer.topics:
            topic.configs = None
            if way.broker_version < 1:
                topic.error_message = None
    return codec(type(answer), version).decode(codec(type(answer), version).encode(answer))


def weirs(answer: MetadataResponse | FindCoordinatorResponse) -> Message:
    if isinstance(answer, FindCoordinatorResponse):
        answer.host, answer.port = (
            ("weir", 19093 + answer.node_id) if answer.node_id >= 0 else (answer.host, answer.port)
        )
    else:
        for broker in answer.brokers:
            broker.host, broker.port = "weir", 19093 + broker.node_id
    return answer


@st.composite
def exchanges(draw: st.DrawFn, key: int, broker_version: int, version: int) -> tuple[Message, Message]:
    """A request that the broker's version can say, and an answer in it."""
    asked = draw(messages(request_type(key), broker_version))
    answer = draw(messages(response_type(key), broker_version))
    assume(beyond(asked, version, broker_version) is None)
    try:
        codec(type(asked), version).encode(asked)
        codec(type(answer), version).encode(answer)
    except EncodeError:
        assume(False)
    if isinstance(answer, FindCoordinatorResponse):
        answer.node_id = draw(st.sampled_from([-1, 0, 1, 2]))
    if isinstance(answer, MetadataResponse):
        for number, broker in enumerate(answer.brokers):
            broker.node_id = number
    return asked, answer


@in_one_test
@pytest.mark.parametrize(("release", "key", "version"), RAISED)
def test_uplifted_requests_and_responses_keep_their_meaning(
    release: tuple[int, ...], key: int, version: int
) -> None:
    broker = broker_of(release)
    way = route(key, version, broker[key])
    assert way is not None

    @given(exchanges(key, way.broker_version, version), st.sampled_from([1, 3, 10_000]))
    @SETTINGS
    def check(exchange: tuple[Message, Message], size: int) -> None:
        asked, answer = exchange
        wire = Wire(connection_with(broker))
        for part in cut(request(asked, version, 7), size):
            wire.feed(0, client=part)
        (frame,) = split(bytes(wire.to_broker))
        assert (head_of(frame).version, head_of(frame).correlation_id) == (way.broker_version, 7)
        assert request_body_of(frame, type(asked), way.broker_version) == asked
        for part in cut(response(answer, way.broker_version, 7), size):
            wire.feed(0, broker=part)
        assert wire.connection.effects.close_reason is None
        (frame,) = split(bytes(wire.to_client))
        found = body_of(frame, type(answer), version)
        assert found == expected_response(answer, key, version, way)
        assert wire.connection.idle

    check()


# ApiVersions


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("again", [False, True])
def test_uplift_raises_the_versions_in_apiversions_responses(version: int, *, again: bool) -> None:
    broker = broker_of((0, 10, 2))
    plans = Plans(Counters(), uplift=True)
    for _ in range(1 + again):
        wire = Wire(new_connection(plans=plans.for_broker(broker)))
        wire.feed(0, client=request(ApiVersionsRequest(), version, 5))
        (frame,) = split(bytes(wire.to_broker))
        assert head_of(frame).version == 0
        wire.feed(0, broker=told(broker, 0, 5))
        answer = body_of(bytes(wire.to_client), ApiVersionsResponse, version)
        found = {one.api_key: VersionRange(one.min_version, one.max_version) for one in answer.api_keys}
        assert found == offered(broker)
        assert answer.throttle_time_ms == 0


def test_an_unsupported_version_error_teaches_uplift_no_versions() -> None:
    connection = new_connection(plans=Plans(Counters(), uplift=True))
    with Playbook(connection=connection) as play:
        play.forwards(request(ApiVersionsRequest(), 3))
        refusal = response(ApiVersionsResponse(error_code=35), 0)
        play.returns(refusal)
        assert connection.broker_versions.broker is None


QUESTION: Final = request(ApiVersionsRequest(), 0)


def test_uplift_queries_versions_once_for_a_client_without_apiversions() -> None:
    broker = broker_of((0, 10, 2))
    ping, pong = request(HeartbeatRequest(), 2), response(HeartbeatResponse(), 2)
    with Playbook(connection=new_connection(plans=Plans(Counters(), uplift=True))) as play:
        play.client(ping, ping)
        play.to_broker(QUESTION)
        play.broker(told(broker))
        play.to_broker(request(HeartbeatRequest(), 0) * 2)
        play.returns(response(HeartbeatResponse(), 0), told=pong)
        play.returns(response(HeartbeatResponse(), 0), told=pong)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (SaslHandshakeRequest(mechanism="PLAIN"), 0),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=b"x"), 0),
        (SaslAuthenticateRequest(auth_bytes=b"x"), 1),
        (ApiVersionsRequest(), 0),
        (ApiVersionsRequest(), 1),
        (ApiVersionsRequest(), 2),
        (ApiVersionsRequest(), 3),
    ],
)
def test_uplift_queries_no_versions_before_sasl(message: Message, version: int) -> None:
    """A broker answers ApiVersions once there, and closes at anything else."""
    with Playbook(connection=new_connection(plans=Plans(Counters(), uplift=True))) as play:
        play.forwards(request(message, version))


def test_brokers_of_different_releases_keep_separate_versions() -> None:
    plans = Plans(Counters(), uplift=True)
    ping = request(HeartbeatRequest(), 2)
    for release, spoken in (((0, 10, 2), 0), ((1, 1), 1), ((2, 8), 2), ((0, 10, 2), 0)):
        wire = Wire(new_connection(plans=plans))
        wire.feed(0, client=request(ApiVersionsRequest(), 0))
        wire.to_broker.clear()
        wire.feed(0, broker=told(broker_of(release)))
        wire.feed(0, client=ping)
        assert head_of(bytes(wire.to_broker)).version == spoken


# Large, unsupported, untouched


def topics_of(count: int) -> list[MetadataResponse.MetadataResponseTopic]:
    topic = MetadataResponse.MetadataResponseTopic
    return [topic(name=f"topic-{number:06}" + "x" * 200) for number in range(count)]


def test_a_response_larger_than_the_buffer_is_uplifted_as_it_streams() -> None:
    broker = MetadataResponse.MetadataResponseBroker
    answer = MetadataResponse(brokers=[broker(node_id=1, host="kafka", port=9092)], topics=topics_of(5000))
    frame = response(answer, 2)
    assert len(frame) > 1 << 20
    wire = Wire(connection_with(broker_of((0, 10, 2))))
    wire.exchange(0, request(MetadataRequest(topics=None), 3), frame[:300_000])
    assert len(wire.to_client) > 200_000
    wire.feed(0, broker=frame[300_000:])
    found = body_of(bytes(wire.to_client), MetadataResponse, 3)
    assert [(each.host, each.port) for each in found.brokers] == [("weir", 19094)]
    assert (found.throttle_time_ms, found.topics) == (0, answer.topics)


CREATABLE: Final = CreateTopicsRequest.CreatableTopic
UNSUPPORTED: Final = 35


@pytest.mark.parametrize(
    ("release", "asked", "version"),
    [
        ((0, 10, 2), FindCoordinatorRequest(key="t", key_type=1), 1),
        ((0, 10, 2), CreateTopicsRequest(topics=[CREATABLE(name="t", num_partitions=-1)]), 5),
        (
            (0, 10, 2),
            CreateTopicsRequest(topics=[CREATABLE(name="t", num_partitions=1, replication_factor=-1)]),
            6,
        ),
    ],
)
def test_requests_that_the_brokers_version_cannot_encode_are_unsupported(
    release: tuple[int, ...], asked: Message, version: int
) -> None:
    wire = Wire(connection_with(broker_of(release)))
    wire.feed(0, client=request(asked, version, 6))
    assert not wire.to_broker
    kind = response_type(head_of(request(asked, version)).api_key)
    answer = body_of(bytes(wire.to_client), kind, version)
    results = getattr(answer, "topics", getattr(answer, "results", getattr(answer, "responses", [answer])))
    assert [each.error_code for each in results] == [UNSUPPORTED]
    assert wire.connection.idle
