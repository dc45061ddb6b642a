"""Request frames, built once and sent again and again, and the record batches in them.

Versions are those of Kafka 3.9's own clients, which have everything that a proxy may have to look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from calibration import bodies, frames
from calibration.batches import batch
from protocol import (
    ApiKey,
    Message,
)
from protocol.messages import (
    CreateTopicsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

CLIENT_ID: Final = "weir-bench-000000"
CREATE_TOPICS_VERSION: Final = 5
FETCH_VERSION: Final = 17
METADATA_VERSION: Final = 12
PRODUCE_VERSION: Final = 11
SASL_VERSION: Final = 1
"""Of both requests: what has come with frames of Kafka's (KIP-152), and no tagged fields yet."""


@dataclass(frozen=True, slots=True)
class Request:
    """A frame, and what is needed to understand its response."""

    api: ApiKey
    version: int
    frame: bytes

    def response(self, frame: bytes) -> Message:
        """Decode a whole response frame. Raises ProtocolError."""
        return frames.Request(self.api, self.version, b"").answer(frame)


def request(version: int, body: Message) -> Request:
    """Put length and header before a body."""
    made = frames.encoded(body, version)
    return Request(made.api, version, made.frame(CLIENT_ID))


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
    return request(METADATA_VERSION, bodies.metadata([topic]))


def produce(topic: str, value_bytes: int) -> Request:
    """Produce one record to partition 0, acks=1."""
    body = bodies.produce({topic: [0]}, record_batch(bytes(value_bytes)), timeout_ms=10_000)
    return request(PRODUCE_VERSION, body)


def fetch(topic_id: UUID, at_most_bytes: int) -> Request:
    """Fetch partition 0 from its beginning, without a fetch session."""
    return request(FETCH_VERSION, bodies.fetch(topic_id, [0], at_most_bytes, max_wait_ms=1000))


def create_topic(name: str, configs: dict[str, str]) -> Request:
    """Create a topic with one partition."""
    settings = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=configs[key]) for key in configs]
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, configs=settings
    )
    body = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    return request(CREATE_TOPICS_VERSION, body)


def sasl_plain(user: str, password: str) -> tuple[Request, Request]:
    """What a client authenticates with: PLAIN (RFC 4616)."""
    token = f"\0{user}\0{password}".encode()
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    return (
        request(SASL_VERSION, handshake),
        request(SASL_VERSION, SaslAuthenticateRequest(auth_bytes=token)),
    )


def record_batch(value: bytes) -> bytes:
    """One record without key or headers in a batch of format 2, not compressed; timestamp 0."""
    return batch([value], now_ms=0).data
