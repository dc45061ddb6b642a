"""Captures of one connection, and record batches in produce requests and fetch responses."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from tests.wire.frames import framed, request, response
from weir.conformance.events import Bytes, Event, Side
from weir.conformance.verify import Finding, verify
from weir.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse

MS: Final = 1_000_000
"""Nanoseconds."""


def sent(data: bytes, ms: int = 0, connection: int = 1) -> Bytes:
    return Bytes(connection, ms * MS, Side.CLIENT, data)


def answered(data: bytes, ms: int = 0, connection: int = 1) -> Bytes:
    return Bytes(connection, ms * MS, Side.SERVER, data)


def findings(*events: Event) -> list[Finding]:
    return list(verify(events))


def rules(found: Iterable[Finding]) -> list[str]:
    return [str(finding.rule) for finding in found]


def produce(records: bytes, version: int = 9, correlation_id: int = 1, partition: int = 0) -> bytes:
    """A produce request's frame, with acks=1."""
    part = ProduceRequest.PartitionProduceData(index=partition, records=records)
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[part])
    return request(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), version, correlation_id)


def produced(version: int = 9, correlation_id: int = 1, error_code: int = 0) -> bytes:
    part = ProduceResponse.PartitionProduceResponse(index=0, error_code=error_code, base_offset=7)
    topic = ProduceResponse.TopicProduceResponse(name="orders", partition_responses=[part])
    return response(ProduceResponse(responses=[topic]), version, correlation_id)


def fetch(version: int = 11, correlation_id: int = 1) -> bytes:
    """A fetch request's frame, without partitions: its session has them."""
    return request(FetchRequest(max_wait_ms=1, min_bytes=1, session_id=9), version, correlation_id)


def fetched(records: bytes, version: int = 11, correlation_id: int = 1) -> bytes:
    """The response's frame, with the records of one partition."""
    part = FetchResponse.PartitionData(partition_index=0, high_watermark=100, records=records)
    topic = FetchResponse.FetchableTopicResponse(topic="orders", partitions=[part])
    return response(FetchResponse(responses=[topic]), version, correlation_id)


def nested(count: int) -> bytes:
    """A produce request of empty topics, three bytes each."""
    count_bytes = bytearray()
    left = count + 1
    while left > 127:
        count_bytes.append(left & 127 | 128)
        left >>= 7
    body = b"\0\0\1\0\0\0\1" + bytes([*count_bytes, left]) + b"\1\1\0" * count + b"\0"
    return framed(struct.pack(">hhi", 0, 9, 1) + b"\0\1a\0" + body)
