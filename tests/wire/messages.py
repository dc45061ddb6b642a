"""Requests of a client and responses of a broker that most tests get along with, as frames."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

from tests.wire.frames import padded, request, response
from weir.protocol.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ProduceRequest,
    ProduceResponse,
)


def ping(number: int = 1, client_id: bytes | None = b"app", group_id: str = "") -> bytes:
    return request(HeartbeatRequest(group_id=group_id), 4, number, client_id)


def pong(number: int = 1, throttle_ms: int = 0) -> bytes:
    return response(HeartbeatResponse(throttle_time_ms=throttle_ms), 4, number)


def produce(
    number: int = 1, length: int = 12_106, version: int = 7, acks: int = 1, client_id: bytes | None = b"app"
) -> bytes:
    """A request whose length prefix is `length`."""
    return padded(request(ProduceRequest(acks=acks), version, number, client_id), length)


def id_of(topic: str) -> UUID:
    """Id of the topic in these frames, and in tests that teach names."""
    return uuid5(NAMESPACE_DNS, topic)


def identity(topic: str, version: int, field: str = "topic") -> dict[str, Any]:
    """The fields that identify a topic in this version of Produce or Fetch."""
    return {"topic_id": id_of(topic)} if version >= 13 else {field: topic}


def produce_to(number: int = 1, version: int = 9, acks: int = 1, **sizes: int) -> bytes:
    """A request with so many bytes of records for each topic."""
    topics = [
        ProduceRequest.TopicProduceData(
            **identity(name, version, "name"),
            partition_data=[ProduceRequest.PartitionProduceData(records=b"r" * size)],
        )
        for name, size in sizes.items()
    ]
    return request(ProduceRequest(acks=acks, topic_data=topics), version, number)


def produced(number: int = 1, throttle_ms: int = 0, version: int = 7) -> bytes:
    return response(ProduceResponse(throttle_time_ms=throttle_ms), version, number)


def fetch(
    number: int = 1, version: int = 11, max_bytes: int = 1000, client_id: bytes | None = b"app"
) -> bytes:
    """A request that does not name a topic."""
    asked = FetchRequest(max_bytes=max_bytes, min_bytes=1, max_wait_ms=500)
    return request(asked, version, number, client_id)


def least(number: int = 1, version: int = 11) -> bytes:
    """The same, as the broker gets it from a client over its quota: it asks for as little as can be."""
    return request(FetchRequest(max_bytes=1, min_bytes=0, max_wait_ms=0), version, number)


def fetched(number: int = 1, size: int = 0, throttle_ms: int = 0, version: int = 11) -> bytes:
    return fetched_from(number, throttle_ms, version, **{"": size})


def fetched_from(
    number: int = 1, throttle_ms: int = 0, version: int = 12, session_id: int = 0, **sizes: int
) -> bytes:
    """A response with so many bytes of records of each topic."""
    topics = [
        FetchResponse.FetchableTopicResponse(
            **identity(name, version), partitions=[FetchResponse.PartitionData(records=b"r" * size)]
        )
        for name, size in sizes.items()
    ]
    value = FetchResponse(responses=topics, throttle_time_ms=throttle_ms, session_id=session_id)
    return response(value, version, number)


def emptied(number: int, throttle_ms: int, version: int = 11) -> bytes:
    """A response without records, as a client over its quota gets it."""
    return fetched(number, 0, throttle_ms, version)


def length_of(frame: bytes) -> int:
    return len(frame) - 4
