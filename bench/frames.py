"""Build the request frames that the load generator sends, and the record batches in them.

The versions are those of Kafka 3.9's own clients: the newest, with all fields that a proxy may have to parse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from weir.calibration import bodies, frames
from weir.calibration.batches import batch
from weir.protocol import (
    ApiKey,
    Message,
)
from weir.protocol.messages import (
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
"""Version of SaslHandshake and SaslAuthenticate: tokens are sent in Kafka frames (KIP-152), and neither
request has tagged fields.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A request frame, with the API and version that are needed to decode its response."""

    api: ApiKey
    version: int
    frame: bytes

    def response(self, frame: bytes) -> Message:
        """Decode a response frame to this request. Raises ProtocolError."""
        return frames.Request(self.api, self.version, b"").answer(frame)


def request(version: int, body: Message) -> Request:
    """Encode a message as a request, with length field, header and CLIENT_ID."""
    made = frames.encoded(body, version)
    return Request(made.api, version, made.frame(CLIENT_ID))


def client_ids(count: int) -> list[str]:
    """Return client-ids of the same length: CLIENT_ID, and others that differ from it in the digits. At most
    1,000,000.
    """
    stem, dash, digits = CLIENT_ID.rpartition("-")
    return [f"{stem}{dash}{number:0{len(digits)}}" for number in range(count)]


def spread(frame: bytes, count: int) -> list[bytes]:
    """Return copies of a request frame with CLIENT_ID replaced by `count` different client-ids of the same
    length.
    """
    before, after = frame.split(CLIENT_ID.encode(), 1)
    return [before + client_id.encode() + after for client_id in client_ids(count)]


def metadata(topic: str) -> Request:
    """Return a metadata request for the brokers and one topic."""
    return request(METADATA_VERSION, bodies.metadata([topic]))


def produce(topic: str, value_bytes: int) -> Request:
    """Return a produce request with one record of `value_bytes` zeros for partition 0, acks=1."""
    body = bodies.produce({topic: [0]}, record_batch(bytes(value_bytes)), timeout_ms=10_000)
    return request(PRODUCE_VERSION, body)


def fetch(topic_id: UUID, at_most_bytes: int) -> Request:
    """Return a fetch request for partition 0 from offset 0, without a fetch session."""
    return request(FETCH_VERSION, bodies.fetch(topic_id, [0], at_most_bytes, max_wait_ms=1000))


def create_topic(name: str, configs: dict[str, str]) -> Request:
    """Return a request that creates a topic with one partition."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, configs=topic_configs(configs)
    )
    body = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    return request(CREATE_TOPICS_VERSION, body)


def topic_configs(configs: Mapping[str, str]) -> list[CreateTopicsRequest.CreatableTopicConfig]:
    """Return a topic's configurations as a request has them."""
    return [CreateTopicsRequest.CreatableTopicConfig(name=key, value=configs[key]) for key in configs]


def sasl_plain(user: str, password: str) -> tuple[Request, Request]:
    """Return the two requests of an authentication with SASL PLAIN (RFC 4616): handshake and token."""
    token = f"\0{user}\0{password}".encode()
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    return (
        request(SASL_VERSION, handshake),
        request(SASL_VERSION, SaslAuthenticateRequest(auth_bytes=token)),
    )


def record_batch(value: bytes) -> bytes:
    """Return an uncompressed batch (format 2) with one record: `value`, no key, no headers, timestamp 0."""
    return batch([value], now_ms=0).data
