"""Start the broker behind all targets, and create the topics that the loads use."""

from __future__ import annotations

import socket
import time
from typing import Final
from uuid import UUID

from bench import frames
from bench.entry import PLAIN, Entry, open_connection, receive_frame
from bench.frames import Request
from bench.rows import FETCH_BYTES, SMALL_BYTES, Topics
from tests.kafka import Cluster
from tests.kafka.settings import HOST
from weir.calibration.frames import error_codes
from weir.protocol import ErrorCode, Message
from weir.protocol.messages import MetadataResponse

VERSION: Final = "3.9.1"
HEAP: Final = "512m"
_MB: Final = 1 << 20

SETTINGS: Final = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "100",
}
"""Broker settings that make the broker delete old segments within about a second, so that its disk usage
stays bounded.
"""
WRITTEN: Final = "bench-written"
READ: Final = "bench-read"
READ_SMALL: Final = "bench-read-small"
FOR_EVER: Final = {"retention.ms": "-1"}
"""Topic settings without a time limit: the benchmark's records have the timestamp 0, so any limit would
delete them at once.
"""
SHORT_RETENTION: Final = FOR_EVER | {"segment.bytes": str(16 * _MB), "retention.bytes": str(64 * _MB)}
ANSWER_S: Final = 20.0
READY_S: Final = 30.0
_AGAIN_S: Final = 0.05


class BrokerError(Exception):
    """Raised if the broker answers a request of the benchmark with an error code."""


class NotReadyError(BrokerError):
    """Raised if the broker does not yet serve a topic that was created a moment ago."""


_NOT_READY: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


def cluster() -> Cluster:
    """Return a cluster of one broker, not yet started, with a plain listener and a SASL listener. The cluster
    prints no progress.
    """
    return Cluster(
        VERSION, settings=SETTINGS, with_sasl=True, heap=HEAP, optimized=True, say=lambda _text: None
    )


def prepare(port: int) -> Topics:
    """Create the topics of the loads, write their records, and return the topics. Raises BrokerError,
    OSError.
    """
    ask(port, frames.create_topic(WRITTEN, SHORT_RETENTION))
    for name, size in ((READ, FETCH_BYTES), (READ_SMALL, SMALL_BYTES)):
        ask(port, frames.create_topic(name, FOR_EVER))
        ask_until_ready(port, frames.produce(name, size))
    ask_until_ready(port, frames.produce(WRITTEN, SMALL_BYTES))
    return Topics(WRITTEN, topic_id(port, READ), topic_id(port, READ_SMALL))


def topic_id(port: int, name: str) -> UUID:
    """Return the id of a topic, once the broker serves it. Raises BrokerError, OSError."""
    answer = ask_until_ready(port, frames.metadata(name))
    assert isinstance(answer, MetadataResponse)
    return answer.topics[0].topic_id


def ask(port: int, request: Request, entry: Entry = PLAIN) -> Message:
    """Send one request on a new connection, and return the response. Raises BrokerError if the response has
    an error code, OSError.
    """
    with connect(port, entry) as connection:
        answer = request.response(exchange(connection, request))
    codes = error_codes(answer)
    if codes:
        names = ", ".join(sorted(ErrorCode(code).name for code in codes))
        failed = NotReadyError if codes <= _NOT_READY else BrokerError
        raise failed(f"{request.api.name} v{request.version}: {names}")
    return answer


def ask_until_ready(port: int, request: Request, timeout_s: float = READY_S) -> Message:
    """Send the request repeatedly until the broker serves the topic, and return the response. Raises
    NotReadyError after `timeout_s` seconds, BrokerError, OSError.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return ask(port, request)
        except NotReadyError:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(_AGAIN_S)


def connect(port: int, entry: Entry = PLAIN) -> socket.socket:
    """Open a connection to the broker or to a target, with the TLS handshake and authentication of `entry`.
    Raises OSError.
    """
    return open_connection(HOST, port, entry, ANSWER_S)


def exchange(connection: socket.socket, request: Request) -> bytes:
    """Send one request, and return the frame of the response. Raises OSError."""
    connection.sendall(request.frame)
    return receive_frame(connection)
