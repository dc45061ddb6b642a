"""Frames that the load generator sends are what they are meant to be."""

from __future__ import annotations

from uuid import UUID

import pytest
from aiokafka.record.memory_records import MemoryRecords

from bench import frames
from bench.frames import Request
from bench.rows import ROWS, Row, Topics
from weir.protocol import codec, request_header_version, request_type
from weir.protocol.framing import LENGTH, REQUEST_HEAD, request_body
from weir.protocol.messages import (
    FetchRequest,
    Message,
    MetadataRequest,
    ProduceRequest,
    RequestHeader,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

TOPICS = Topics("written", UUID(int=5), UUID(int=6))


def body(request: Request) -> Message:
    """Decode a request's body, to its last byte."""
    flexible = request_header_version(request.api, request.version) == 2
    start = request_body(request.frame, 0, len(request.frame), flexible=flexible)
    return codec(request_type(request.api), request.version).decode(request.frame, start)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_sends_a_whole_request(row: Row) -> None:
    request = row.request(TOPICS)
    length, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(request.frame)
    assert length == len(request.frame) - LENGTH.size
    assert (api_key, version, correlation_id) == (request.api, request.version, 1)
    header = codec(RequestHeader, 2).decode_prefix(
        request.frame, LENGTH.size, len(request.frame), "client_id"
    )
    assert header[0].client_id == frames.CLIENT_ID
    body(request)


def test_requests_are_spread_over_client_ids() -> None:
    sent = frames.spread(frames.metadata("t").frame, 1000)
    assert len({len(frame) for frame in sent}) == 1
    headers = [codec(RequestHeader, 2).decode_prefix(f, LENGTH.size, len(f), "client_id")[0] for f in sent]
    names = [header.client_id for header in headers]
    assert names == frames.client_ids(1000)
    assert len(set(names)) == 1000
    assert names[0] == frames.CLIENT_ID


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_with_one_client_id_sends_one_frame(row: Row) -> None:
    assert row.frames(TOPICS) == [row.request(TOPICS).frame]


def test_metadata_asks_for_one_topic_and_creates_none() -> None:
    message = body(frames.metadata("t"))
    assert isinstance(message, MetadataRequest)
    assert [topic.name for topic in message.topics or []] == ["t"]
    assert not message.allow_auto_topic_creation


def test_fetch_requests_start_at_offset_0() -> None:
    message = body(frames.fetch(UUID(int=5), 1000))
    assert isinstance(message, FetchRequest)
    assert (message.max_bytes, message.session_id, message.session_epoch) == (1000, 0, -1)
    assert message.topics[0].topic_id == UUID(int=5)
    assert message.topics[0].partitions[0].fetch_offset == 0


@pytest.mark.parametrize("size", [0, 63, 64, 100, 16_000])
def test_aiokafka_reads_the_load_generators_record_batches(size: int) -> None:
    message = body(frames.produce("t", size))
    assert isinstance(message, ProduceRequest)
    assert message.acks == 1
    records = MemoryRecords(message.topic_data[0].partition_data[0].records)
    batch = records.next_batch()
    assert batch.validate_crc()
    assert [(record.key, record.value) for record in batch] == [(None, bytes(size))]
    assert records.next_batch() is None


def test_sasl_plain_tokens_equal_the_example_of_rfc_4616() -> None:
    """The example of RFC 4616, section 4, without an authorization id."""
    handshake, authenticate = map(body, frames.sasl_plain("tim", "tanstaaftanstaaf"))
    assert handshake == SaslHandshakeRequest(mechanism="PLAIN")
    assert authenticate == SaslAuthenticateRequest(auth_bytes=b"\0tim\0tanstaaftanstaaf")
