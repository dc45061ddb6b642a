"""A broker that answers every API of every version, in a process of its own.

    python -m tests.attacks.stub PORT NODES NODE

It says that broker n of the NODES brokers is at PORT + n, and serves as broker NODE. Answers are as small as
their schemas allow, but as long as the request's list of topics or keys where it has one.
"""

from __future__ import annotations

import asyncio
import sys
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from tests.hostile.broker import Sound
from tests.hostile.files import raise_descriptor_limit
from tests.kafka.settings import HOST
from tests.wire.frames import head_of, response, response_frame
from tests.wire.smallest import minimal
from weir.protocol.api import ApiKey, request_header_version, versions
from weir.protocol.codec import codec, response_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import request_body
from weir.protocol.messages import (
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from weir.protocol.scanning.field_offsets import field_offset
from weir.protocol.values import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.protocol.values import Message

M = TypeVar("M", bound="Message")

READ_BYTES_MAX: Final = 2 << 20
"""A longer request is not decoded; its answer is the smallest."""


class Broker:
    """Answers to requests."""

    def __init__(self, port: int, nodes: int) -> None:
        """All brokers answer alike."""
        self._brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=node, host=HOST, port=port + node)
            for node in range(nodes)
        ]
        self._port = port
        self._made: dict[int, Callable[[int, bytes], Message]] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._coordinators,
            ApiKey.CREATE_TOPICS: _created,
            ApiKey.DELETE_TOPICS: _deleted,
            ApiKey.API_VERSIONS: lambda _version, _frame: _API_VERSIONS,
        }

    def answer(self, frame: bytes) -> bytes:
        """Return the response; no bytes for a produce request without acks."""
        head = head_of(frame)
        known = versions(head.api_key)
        version = head.version if known is not None and head.version in known else 0
        if head.api_key == ApiKey.PRODUCE and _acks(version, frame) == 0:
            return b""
        make = self._made.get(head.api_key)
        if make is None or len(frame) > READ_BYTES_MAX:
            made = bytearray(_smallest(head.api_key, version))
            made[4:8] = head.correlation_id.to_bytes(4, "big", signed=True)
            return bytes(made)
        return response(make(version, frame), version, head.correlation_id)

    def _metadata(self, version: int, frame: bytes) -> Message:
        asked = _decoded(MetadataRequest, version, frame)
        topics = [
            MetadataResponse.MetadataResponseTopic(
                name=topic.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for topic in asked.topics or []
        ]
        return MetadataResponse(brokers=self._brokers, topics=topics)

    def _coordinators(self, version: int, frame: bytes) -> Message:
        if version < 4:
            return FindCoordinatorResponse(node_id=0, host=HOST, port=self._port)
        keys = _decoded(FindCoordinatorRequest, version, frame).coordinator_keys
        one = FindCoordinatorResponse.Coordinator
        return FindCoordinatorResponse(
            coordinators=[one(key=key, node_id=0, host=HOST, port=self._port) for key in keys]
        )


def _created(version: int, frame: bytes) -> Message:
    asked = _decoded(CreateTopicsRequest, version, frame)
    result = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(topics=[result(name=topic.name) for topic in asked.topics])


def _deleted(version: int, frame: bytes) -> Message:
    asked = _decoded(DeleteTopicsRequest, version, frame)
    names = [topic.name for topic in asked.topics] if version >= 6 else asked.topic_names
    result = DeleteTopicsResponse.DeletableTopicResult
    return DeleteTopicsResponse(responses=[result(name=name) for name in names])


def _decoded(message: type[M], version: int, frame: bytes) -> M:
    """Return the request's message, an empty one if the frame is malformed."""
    api_key = schema_of(message).api_key
    start = request_body(frame, 0, len(frame), flexible=request_header_version(api_key, version) == 2)
    try:
        return codec(message, version).decode_request(frame, start)
    except ProtocolError:
        return message()


def _acks(version: int, frame: bytes) -> int:
    acks = field_offset(ProduceRequest, version, "acks")
    start = request_body(frame, 0, len(frame), flexible=request_header_version(ApiKey.PRODUCE, version) == 2)
    try:
        return 1 if acks is None else acks.read(frame, acks.locate(frame, start, len(frame), True))
    except ProtocolError:
        return 1


@cache
def _smallest(api_key: int, version: int) -> bytes:
    return response_frame(api_key, version, minimal(response_type(api_key), version))


_API_VERSIONS: Final = ApiVersionsResponse(
    api_keys=[
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=known.min, max_version=known.max)
        for key in ApiKey
        if (known := versions(key)) is not None
    ]
)


async def serve(port: int, nodes: int, node: int) -> None:
    """Be this broker, for ever."""
    broker = Broker(port, nodes)
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Sound(broker.answer), HOST, port + node, backlog=4096)
    await asyncio.Event().wait()


if __name__ == "__main__":
    raise_descriptor_limit()
    asyncio.run(serve(*map(int, sys.argv[1:])))
