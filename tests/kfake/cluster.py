"""A cluster of fake brokers: what it has, what it was asked, and what it answers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast
from uuid import UUID

from tests.wire.frames import head_of, response, response_frame
from tests.wire.smallest import minimal
from weir.protocol.api import ApiKey, request_header_version, versions
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import request_body
from weir.protocol.messages import (
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from weir.protocol.scanning.field_offsets import field_offset
from weir.protocol.values import schema_of
from weir.protocol.versions import VersionRange
from weir.proxy.addresses import Address

if TYPE_CHECKING:
    import ssl

    import trio

MetadataTopic = MetadataResponse.MetadataResponseTopic
M = TypeVar("M", bound=Message)

HOST: Final = "127.0.0.1"
DECODED_BYTES_MAX: Final = 2 << 20
"""The answer to a longer request is the smallest."""
NO_ID: Final = UUID(int=0)
_ANY: Final = VersionRange(0, 3)

Answer: TypeAlias = Message | bytes | None
"""A response; the bytes of its body, right or wrong; None closes the connection."""
Handler: TypeAlias = Callable[[Any, int, int], Answer]
"""Takes a request, its version, and the time (ms)."""


def everything() -> dict[int, VersionRange]:
    return {int(key): known for key in ApiKey if (known := versions(key)) is not None}


def up_to(newest: Mapping[ApiKey, int]) -> dict[int, VersionRange]:
    return {int(key): VersionRange(0, version) for key, version in newest.items()}


class Asked(NamedTuple):
    """A request's frame, and the node id of the broker that received it."""

    node_id: int
    frame: bytes

    @property
    def version(self) -> int:
        return head_of(self.frame).version

    @property
    def client_id(self) -> str:
        (length,) = struct.unpack_from(">h", self.frame, 12)
        return self.frame[14 : 14 + max(length, 0)].decode()

    @property
    def message(self) -> Message:
        """The request, decoded as a broker does. Raises ProtocolError."""
        head = head_of(self.frame)
        if self.body_at < 0:
            raise ProtocolError("the header is cut off")
        return codec(request_type(head.api_key), head.version).decode_request(self.frame, self.body_at)

    @property
    def body_at(self) -> int:
        head = head_of(self.frame)
        flexible = request_header_version(head.api_key, head.version) == 2
        return request_body(self.frame, 0, len(self.frame), flexible=flexible)


@dataclass
class Topic:
    partitions: int
    topic_id: UUID


@dataclass(kw_only=True)
class Cluster:
    """Brokers that answer alike."""

    nodes: dict[int, Address] = field(default_factory=dict)
    """What Metadata tells."""
    spoken: dict[int, VersionRange] = field(default_factory=everything)
    topics: dict[str, Topic] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    """Topics that the client may not describe."""
    lag: set[str] = field(default_factory=set)
    """Topics that Metadata does not show yet."""
    handlers: dict[int, Handler | Message] = field(default_factory=dict)
    """By API key; a message is the answer to every request. All other APIs have the smallest answer."""
    received: list[Asked] = field(default_factory=list)
    """All requests."""
    keeps: bool = True
    """False to keep no requests, for brokers that live long."""
    encode: Callable[[Message, int, int], bytes] = response
    """Makes the frame of a response from the message, its version and correlation id."""
    now_ms: int = 0
    """Time of the latest request."""
    garbage: bytes = b""
    """Sent instead of any answer, if set."""
    shy: bool = False
    """Closes the connection instead of telling Weir its brokers, as one does that wants SASL first."""
    tls: ssl.SSLContext | None = None
    """Of every broker's listener; None: they are plain."""
    may_answer: trio.Event | None = None
    """Heartbeats wait for it, if they come through Trio."""
    _made: int = 0

    def __post_init__(self) -> None:
        known: dict[int, Handler | Message] = {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.FIND_COORDINATOR: self.coordinator,
        }
        self.handlers = known | self.handlers

    @property
    def asked(self) -> list[Asked]:
        """The requests of clients: not those of Weir's own connections."""
        return [each for each in self.received if not each.frame.startswith(b"weir", 14)]

    @property
    def questions(self) -> list[tuple[int, int]]:
        heads = [head_of(each.frame) for each in self.received]
        return [(head.api_key, head.version) for head in heads]

    def asked_of(self, kind: type[Message]) -> list[int]:
        api_key = schema_of(kind).api_key
        return [each.version for each in self.received if head_of(each.frame).api_key == api_key]

    def messages_of(self, *kinds: type[M]) -> list[M]:
        keys = {schema_of(kind).api_key for kind in kinds}
        return [cast("M", each.message) for each in self.received if head_of(each.frame).api_key in keys]

    def add(self, name: str, partitions: int = 1, topic_id: UUID | None = None) -> Topic:
        """Have a topic; its id is one that no other has had, unless it is given."""
        self._made += 1
        topic = self.topics[name] = Topic(partitions, topic_id or UUID(int=1000 + self._made))
        return topic

    def sizes(self) -> dict[str, int]:
        return {name: topic.partitions for name, topic in self.topics.items()}

    def answer(self, frame: bytes, now_ms: int | None = None, node_id: int = 0) -> bytes:
        """Return the bytes that answer a request, perhaps none.

        Raises ConnectionAbortedError to close the connection, as for a version that is not spoken.
        """
        self.now_ms = self.now_ms if now_ms is None else now_ms
        asked, head = Asked(node_id, frame), head_of(frame)
        if self.keeps:
            self.received.append(asked)
        if self.shy and frame.startswith(b"weir", 14):
            raise ConnectionAbortedError("a shy broker")
        if self.garbage:
            return self.garbage
        api_key, version = head.api_key, head.version
        if version not in self.spoken.get(api_key, _ANY if api_key == ApiKey.API_VERSIONS else ()):
            if api_key != ApiKey.API_VERSIONS:
                raise ConnectionAbortedError(f"the broker does not speak {head}")
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
            return response(refusal, 0, head.correlation_id)
        if api_key == ApiKey.PRODUCE and not _acks(asked):
            return b""
        found = self._answer(asked, api_key)
        if found is None:
            raise ConnectionAbortedError(f"no answer to {head}")
        if isinstance(found, bytes):
            return response_frame(api_key, version, found, head.correlation_id)
        return self.encode(found, version, head.correlation_id)

    def handler(self, api_key: int) -> Handler:
        found = self.handlers[api_key]
        return (lambda *_: found) if isinstance(found, Message) else found

    def _answer(self, asked: Asked, api_key: int) -> Answer:
        handler = self.handlers.get(api_key)
        if isinstance(handler, Message):
            return handler
        if handler is None or len(asked.frame) > DECODED_BYTES_MAX:
            return _smallest(api_key, asked.version)
        try:
            return handler(asked.message, asked.version, self.now_ms)
        except ProtocolError:
            return None

    def api_versions(self, _request: Message, _version: int, _now_ms: int) -> Answer:
        entry = ApiVersionsResponse.ApiVersion
        keys = [
            entry(api_key=key, min_version=one.min, max_version=one.max) for key, one in self.spoken.items()
        ]
        return ApiVersionsResponse(api_keys=keys)

    def metadata(self, request: MetadataRequest, version: int, _now_ms: int) -> Answer:
        broker = MetadataResponse.MetadataResponseBroker
        return MetadataResponse(
            brokers=[broker(node_id=node, host=at.host, port=at.port) for node, at in self.nodes.items()],
            controller_id=self.leader,
            topics=self._wanted(request, version),
        )

    def _wanted(self, request: MetadataRequest, version: int) -> list[MetadataTopic]:
        wanted = request.topics
        if wanted is None or (version == 0 and not wanted):
            return [self.described(name) for name in self.topics if name not in self.lag]
        ids = [topic.topic_id for topic in wanted if topic.topic_id != NO_ID]
        if ids:  # then names are not looked at
            return [self._described_by_id(topic_id) for topic_id in ids]
        if any(topic.name is None for topic in wanted):  # neither a name nor an id: none is answered
            return [MetadataTopic(error_code=-1, name=topic.name or "") for topic in wanted]
        names = dict.fromkeys(topic.name or "" for topic in wanted)
        return [self.described(name, create=request.allow_auto_topic_creation) for name in names]

    def _described_by_id(self, topic_id: UUID) -> MetadataTopic:
        for name, topic in self.topics.items():
            if topic.topic_id == topic_id and name not in self.lag:
                return self.described(name)
        return MetadataTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)

    def described(self, name: str, *, create: bool = False) -> MetadataTopic:
        topic = self.topics.get(name)
        if name in self.denied:
            return MetadataTopic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic is None or name in self.lag:
            return MetadataTopic(name=name, error_code=self.missing(name, create=create))
        partition, leader = MetadataResponse.MetadataResponsePartition, self.leader
        return MetadataTopic(
            name=name,
            topic_id=topic.topic_id,
            partitions=[
                partition(partition_index=index, leader_id=leader, replica_nodes=[leader])
                for index in range(topic.partitions)
            ],
        )

    def missing(self, _name: str, *, create: bool) -> int:  # noqa: ARG002  # a controller creates
        """The error code of a topic that does not exist."""
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def leader(self) -> int:
        """Node id of the leader of all partitions, which is the controller too."""
        return min(self.nodes, default=0)

    def coordinator(self, request: FindCoordinatorRequest, version: int, _now_ms: int) -> Answer:
        node_id, at = self.leader, self.nodes[self.leader]
        if version < 4:
            return FindCoordinatorResponse(node_id=node_id, host=at.host, port=at.port)
        one = FindCoordinatorResponse.Coordinator
        return FindCoordinatorResponse(
            coordinators=[
                one(key=key, node_id=node_id, host=at.host, port=at.port) for key in request.coordinator_keys
            ]
        )


def _acks(asked: Asked) -> int:
    """Without decoding the records. A malformed request is answered."""
    acks = field_offset(ProduceRequest, asked.version, "acks")
    try:
        return (
            1
            if acks is None
            else acks.read(asked.frame, acks.locate(asked.frame, asked.body_at, len(asked.frame), True))
        )
    except ProtocolError:
        pass
    return 1


@cache
def _smallest(api_key: int, version: int) -> bytes:
    return minimal(response_type(api_key), version)
