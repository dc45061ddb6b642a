"""Request frames, built once and sent again and again, and the record batches in them.

Versions are those of Kafka 3.9's own clients, which have everything that a proxy may have to look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final
from uuid import UUID

from calibration.batches import crc32c, varint
from protocol import (
    ApiKey,
    Message,
    codec,
    request_header_version,
    request_type,
    response_header_version,
    response_type,
)
from protocol.framing import LENGTH, response_body
from protocol.messages import (
    CreateTopicsRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
    RequestHeader,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

CLIENT_ID: Final = "weir-bench-000000"
CORRELATION_ID: Final = 1
CREATE_TOPICS_VERSION: Final = 5
FETCH_VERSION: Final = 17
METADATA_VERSION: Final = 12
PRODUCE_VERSION: Final = 11
SASL_VERSION: Final = 1
"""Of both requests: what has come with frames of Kafka's (KIP-152), and no tagged fields yet."""

_BATCH_HEAD: Final = Struct(">qiibI")
"""Base offset, length, leader epoch, magic, CRC-32C of what follows."""
_BATCH_REST: Final = Struct(">hiqqqhii")
"""Attributes, last offset delta, first and last timestamp, producer id, its epoch, base sequence, count."""
_BATCH_LENGTH_FROM: Final = 12
"""The batch length does not count the base offset and itself."""


@dataclass(frozen=True, slots=True)
class Request:
    """A frame, and what is needed to understand its response."""

    api_key: ApiKey
    version: int
    frame: bytes

    def response(self, frame: bytes) -> Message:
        """Decode a whole response frame. Raises ProtocolError."""
        flexible = response_header_version(self.api_key, self.version) == 1
        body = response_body(frame, 0, len(frame), flexible=flexible)
        return codec(response_type(self.api_key), self.version).decode(frame, body)


def request(api_key: ApiKey, version: int, body: Message) -> Request:
    """Put length and header before a body."""
    head = RequestHeader(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=CORRELATION_ID,
        client_id=CLIENT_ID,
    )
    content = codec(RequestHeader, request_header_version(api_key, version)).encode(head)
    content += codec(request_type(api_key), version).encode(body)
    return Request(api_key, version, LENGTH.pack(len(content)) + content)


def client_ids(count: int) -> list[str]:
    """Client-ids that differ from CLIENT_ID, the first of them, in their digits. At most a million."""
    stem, dash, digits = CLIENT_ID.rpartition("-")
    return [f"{stem}{dash}{number:0{len(digits)}}" for number in range(count)]


def spread(frame: bytes, count: int) -> list[bytes]:
    """The same request from so many client-ids; all of one length."""
    before, after = frame.split(CLIENT_ID.encode(), 1)
    return [before + client_id.encode() + after for client_id in client_ids(count)]


def metadata(topic: str) -> Request:
    """Ask for the brokers and one topic."""
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    body = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
    return request(ApiKey.METADATA, METADATA_VERSION, body)


def produce(topic: str, value_bytes: int) -> Request:
    """Produce one record to partition 0, acks=1."""
    partition = ProduceRequest.PartitionProduceData(index=0, records=record_batch(bytes(value_bytes)))
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    body = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])
    return request(ApiKey.PRODUCE, PRODUCE_VERSION, body)


def fetch(topic_id: UUID, at_most_bytes: int) -> Request:
    """Fetch partition 0 from its beginning, without a fetch session."""
    partition = FetchRequest.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=at_most_bytes
    )
    body = FetchRequest(
        max_wait_ms=1000,
        min_bytes=1,
        max_bytes=at_most_bytes,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    return request(ApiKey.FETCH, FETCH_VERSION, body)


def create_topic(name: str, configs: dict[str, str]) -> Request:
    """Create a topic with one partition."""
    settings = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=configs[key]) for key in configs]
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, configs=settings
    )
    body = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    return request(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, body)


def sasl_plain(user: str, password: str) -> tuple[Request, Request]:
    """What a client authenticates with: PLAIN (RFC 4616)."""
    token = f"\0{user}\0{password}".encode()
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    return (
        request(ApiKey.SASL_HANDSHAKE, SASL_VERSION, handshake),
        request(ApiKey.SASL_AUTHENTICATE, SASL_VERSION, SaslAuthenticateRequest(auth_bytes=token)),
    )


def record_batch(value: bytes) -> bytes:
    """One record without key or headers in a batch of format 2, not compressed; timestamp 0."""
    record = b"\0\0\0\x01" + varint(len(value)) + value + b"\0"  # attributes, deltas, key -1, …, no headers
    rest = _BATCH_REST.pack(0, 0, 0, 0, -1, -1, -1, 1) + varint(len(record)) + record
    length = _BATCH_HEAD.size - _BATCH_LENGTH_FROM + len(rest)
    return _BATCH_HEAD.pack(0, length, -1, 2, crc32c(rest)) + rest
