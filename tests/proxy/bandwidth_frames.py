"""Produce, Fetch and Heartbeat frames of chosen lengths and versions."""

from __future__ import annotations

from protocol.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    ProduceRequest,
    ProduceResponse,
)
from tests.proxy.frames import padded, request, response


def produce(correlation_id: int, length: int, version: int = 7, acks: int = 1) -> bytes:
    """A request whose length prefix is `length`."""
    return padded(request(ProduceRequest(acks=acks), version, correlation_id), length)


def produced(correlation_id: int, throttle_ms: int = 0, version: int = 7) -> bytes:
    return response(ProduceResponse(throttle_time_ms=throttle_ms), version, correlation_id)


def fetch(correlation_id: int, version: int = 11, max_bytes: int = 1000) -> bytes:
    asked = FetchRequest(max_bytes=max_bytes, min_bytes=1, max_wait_ms=500)
    return request(asked, version, correlation_id)


def least(correlation_id: int, version: int = 11) -> bytes:
    """The same, as the broker gets it from a client over its quota: it asks for as little as can be."""
    return request(FetchRequest(max_bytes=1, min_bytes=0, max_wait_ms=0), version, correlation_id)


def fetched(correlation_id: int, size: int, throttle_ms: int = 0, version: int = 11) -> bytes:
    partition = FetchResponse.PartitionData(records=b"r" * size)
    topic = FetchResponse.FetchableTopicResponse(partitions=[partition])
    return response(FetchResponse(responses=[topic], throttle_time_ms=throttle_ms), version, correlation_id)


def emptied(correlation_id: int, throttle_ms: int, version: int = 11) -> bytes:
    """The same without records, as a client over its quota gets it."""
    return fetched(correlation_id, 0, throttle_ms, version)


def ping(correlation_id: int) -> bytes:
    return request(HeartbeatRequest(), 4, correlation_id)


def length_of(frame: bytes) -> int:
    return len(frame) - 4
