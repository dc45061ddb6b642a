"""Start the broker behind all targets, and create the topics that the loads use."""

from __future__ import annotations

import socket
from typing import Final
from uuid import UUID

from bench import frames
from bench.entry import PLAIN, Entry, open_connection, receive_frame
from bench.rows import FETCH_BYTES, SMALL_BYTES, Topics
from tests.clients import create_topic
from tests.kafka import Cluster
from tests.kafka.settings import HOST
from weir.calibration.frames import Request, error_codes
from weir.protocol import ErrorCode, Message
from weir.protocol.messages import MetadataResponse

VERSION: Final = "3.9.1"
HEAP: Final = "512m"
SETTINGS: Final = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "log.segment.bytes": str(16 << 20),
    "log.retention.bytes": str(64 << 20),
    "log.retention.ms": "-1",
}
"""Broker settings that make the broker delete old segments within about a second, so that its disk usage
stays bounded. There is no time limit: the benchmark's records have the timestamp 0, so any limit would delete
them at once.
"""
WRITTEN: Final = "bench-written"
READ: Final = "bench-read"
READ_SMALL: Final = "bench-read-small"
ANSWER_S: Final = 20.0


class BrokerError(Exception):
    """Raised if the broker answers a request of the benchmark with an error code."""


def cluster() -> Cluster:
    """Return a cluster of one broker, not yet started, with a plain listener and a SASL listener. The cluster
    prints no progress.
    """
    return Cluster(
        VERSION, settings=SETTINGS, with_sasl=True, heap=HEAP, optimized=True, say=lambda _text: None
    )


def prepare(port: int) -> Topics:
    """Create the topics of the loads, write their records, and return the topics. Raises BrokerError,
    ClientError, OSError.
    """
    for name, size in ((WRITTEN, SMALL_BYTES), (READ, FETCH_BYTES), (READ_SMALL, SMALL_BYTES)):
        create_topic(f"{HOST}:{port}", name)
        ask(port, frames.produce(name, size))
    return Topics(WRITTEN, _topic_id(port, READ), _topic_id(port, READ_SMALL))


def _topic_id(port: int, name: str) -> UUID:
    answer = ask(port, frames.metadata(name))
    assert isinstance(answer, MetadataResponse)
    return answer.topics[0].topic_id


def ask(port: int, request: Request, entry: Entry = PLAIN) -> Message:
    """Send one request on a new connection, and return the response. Raises BrokerError if the response has
    an error code, OSError.
    """
    with connect(port, entry) as connection:
        answer = request.answer(exchange(connection, request))
    codes = error_codes(answer)
    if codes:
        names = ", ".join(sorted(ErrorCode(code).name for code in codes))
        raise BrokerError(f"{request.api.name} v{request.version}: {names}")
    return answer


def connect(port: int, entry: Entry = PLAIN) -> socket.socket:
    """Open a connection to the broker or to a target, with the TLS handshake and authentication of `entry`.
    Raises OSError.
    """
    return open_connection(HOST, port, entry, ANSWER_S)


def exchange(connection: socket.socket, request: Request) -> bytes:
    """Send one request, and return the frame of the response. Raises OSError."""
    connection.sendall(request.frame(frames.CLIENT_ID))
    return receive_frame(connection)
