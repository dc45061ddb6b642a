"""Build the request frames that the load generator sends, and the record batches in them.

The versions are those of Kafka 3.9's own clients: the newest, with all fields that a proxy may have to parse.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from weir.calibration import bodies
from weir.calibration.batches import batch
from weir.calibration.frames import Request, encoded
from weir.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest

CLIENT_ID: Final = "weir-bench-000000"
FETCH_VERSION: Final = 17
METADATA_VERSION: Final = 12
PRODUCE_VERSION: Final = 11
SASL_VERSION: Final = 1
"""Version of SaslHandshake and SaslAuthenticate: tokens are sent in Kafka frames (KIP-152), and neither
request has tagged fields.
"""


def client_ids(count: int) -> list[str]:
    """Return client-ids of the same length: CLIENT_ID, and others that differ from it in the digits. At most
    1,000,000.
    """
    stem, dash, digits = CLIENT_ID.rpartition("-")
    return [f"{stem}{dash}{number:0{len(digits)}}" for number in range(count)]


def metadata(topic: str) -> Request:
    """Return a metadata request for the brokers and one topic."""
    return encoded(bodies.metadata([topic]), METADATA_VERSION)


def produce(topic: str, value_bytes: int) -> Request:
    """Return a produce request with one record of `value_bytes` zeros for partition 0, acks=1."""
    body = bodies.produce({topic: [0]}, record_batch(bytes(value_bytes)), timeout_ms=10_000)
    return encoded(body, PRODUCE_VERSION)


def fetch(topic_id: UUID, at_most_bytes: int) -> Request:
    """Return a fetch request for partition 0 from offset 0, without a fetch session."""
    return encoded(bodies.fetch(topic_id, [0], at_most_bytes, max_wait_ms=1000), FETCH_VERSION)


def sasl_plain(user: str, password: str) -> list[Request]:
    """Return the two requests of an authentication with SASL PLAIN (RFC 4616): handshake and token."""
    token = f"\0{user}\0{password}".encode()
    made = (SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=token))
    return [encoded(each, SASL_VERSION) for each in made]


def record_batch(value: bytes) -> bytes:
    """Return an uncompressed batch (format 2) with one record: `value`, no key, no headers, timestamp 0."""
    return batch([value], now_ms=0).data
