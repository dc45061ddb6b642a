"""The broker that does nothing answers as one that does something."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.broker import READ, READ_SMALL, WRITTEN
from bench.canned import TOPIC_IDS, TOPICS, VERSIONS, WHOLE_BYTES, Answers, Conversation
from bench.frames import Request, metadata, produce, request, sasl_plain
from bench.rows import ROWS, Row
from weir.protocol import codec, response_type
from weir.protocol.framing import LENGTH, RESPONSE_HEAD, response_body
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    MetadataResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)

PORT = 9092
BY_NAME = {row.name: row.request(TOPICS) for row in ROWS}
CHUNKS = [1, 3, WHOLE_BYTES, 1 << 20]


def answers(data: bytes, chunk: int = 1 << 20) -> list[bytes]:
    """Feed bytes in pieces."""
    conversation = Conversation(Answers(PORT).frame)
    view = memoryview(data)
    return [
        frame for at in range(0, len(data), chunk) for frame in conversation.receive(view[at : at + chunk])
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_stub_broker_sends_one_whole_response_to_each_load(row: Row) -> None:
    asked = row.request(TOPICS)
    (frame,) = answers(asked.frame)
    assert RESPONSE_HEAD.unpack_from(frame) == (len(frame) - LENGTH.size, 1)
    assert isinstance(asked.response(frame), response_type(asked.api))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_stub_broker_finds_requests_in_chunks_of_any_size(chunk: int) -> None:
    small, large = BY_NAME["metadata-1"].frame, produce(WRITTEN, 3 * WHOLE_BYTES).frame
    found = answers(small + large + large + small, chunk)
    assert [len(frame) for frame in found] == [len(answers(f)[0]) for f in (small, large, large, small)]


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("chunk", [7, WHOLE_BYTES, 1 << 20])
def test_the_stub_broker_finds_requests_about_as_long_as_the_bytes_it_parses(extra: int, chunk: int) -> None:
    value = WHOLE_BYTES - len(produce(WRITTEN, 2000).frame) + 2000 + extra
    frame = produce(WRITTEN, value).frame
    assert len(frame) == WHOLE_BYTES + extra
    assert len(answers(frame * 3, chunk)) == 3


def changed(frame: bytes, correlation_id: int) -> bytes:
    return frame[:8] + LENGTH.pack(correlation_id) + frame[12:]


@pytest.mark.parametrize("make", [lambda: metadata("t"), lambda: produce(WRITTEN, 100_000)])
def test_the_stub_brokers_responses_carry_their_requests_correlation_ids(make: Callable[[], Request]) -> None:
    frame = make().frame
    found = answers(changed(frame, 7) + changed(frame, 8) + changed(frame, 7))
    assert [RESPONSE_HEAD.unpack_from(answer)[1] for answer in found] == [7, 8, 7]


@pytest.mark.parametrize("topic", [WRITTEN, READ, READ_SMALL])
def test_metadata_of_the_stub_broker_names_its_own_port(topic: str) -> None:
    asked = metadata(topic)
    message = asked.response(answers(asked.frame)[0])
    assert isinstance(message, MetadataResponse)
    assert [broker.port for broker in message.brokers] == [PORT]
    assert [(found.name, found.topic_id) for found in message.topics] == [(topic, TOPIC_IDS[topic])]


@pytest.mark.parametrize(("name", "size"), [("fetch-100b", 100), ("fetch-500kb", 500_000)])
def test_the_stub_broker_sends_a_fetched_record_of_the_loads_size(name: str, size: int) -> None:
    message = BY_NAME[name].response(answers(BY_NAME[name].frame)[0])
    assert isinstance(message, FetchResponse)
    records = message.responses[0].partitions[0].records or b""
    assert size < len(records) < size + 100


def test_the_stub_brokers_apiversions_response_names_the_apis_it_supports() -> None:
    asked = request(3, ApiVersionsRequest())
    frame = answers(asked.frame)[0]
    start = response_body(frame, 0, len(frame), flexible=False)
    message = codec(ApiVersionsResponse, 3).decode(frame, start)
    told = {entry.api_key: (entry.min_version, entry.max_version) for entry in message.api_keys}
    assert told == VERSIONS


def test_the_stub_broker_accepts_any_sasl_plain_password() -> None:
    asked = sasl_plain("anybody", "whatever")
    handshake, authenticate = (one.response(answers(one.frame)[0]) for one in asked)
    assert handshake == SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
    assert isinstance(authenticate, SaslAuthenticateResponse)
    assert authenticate.error_code == 0
