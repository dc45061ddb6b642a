"""Requests for closed loops in which the broker's time is what counts: their number, not their bytes.

As dear as one wants: a Metadata request for so many topics, a Produce to and a Fetch from so many partitions
at once. Nothing but the throttle time is read from what comes back.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Final

from bench.frames import record_batch
from tests.raw.requests import Outcome, Request
from tests.wire import frames
from weir.calibration import bodies

METADATA_VERSION: Final = 9
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
"""The first flexible versions; their throttle times have fixed places."""
_INT32 = struct.Struct(">i")
_FIRST: Final = 9
"""Behind length, correlation id and an empty tag section."""
_LAST: Final = -5
"""Before the body's own empty tag section."""
_VALUE: Final = bytes(10)


def metadata(client_id: str, topics: Sequence[str]) -> Request:
    frame = frames.request(bodies.metadata(topics), METADATA_VERSION, client_id=client_id.encode())
    return _request(frame, _FIRST)


def produce(client_id: str, topic: str, partitions: int, acks: int = 1) -> Request:
    body = bodies.produce({topic: range(partitions)}, record_batch(_VALUE), acks)
    return _request(frames.request(body, PRODUCE_VERSION, client_id=client_id.encode()), _LAST)


def fetch(client_id: str, topic: str, partitions: int, replica_id: int = -1) -> Request:
    """What is at the start of each of the first partitions, at most one record of each; nobody waits."""
    body = bodies.fetch(topic, range(partitions), 1)
    body.replica_id, body.min_bytes, body.max_bytes = replica_id, 0, 1 << 20
    return _request(frames.request(body, FETCH_VERSION, client_id=client_id.encode()), _FIRST)


def _request(frame: bytes, throttle_at: int) -> Request:
    return Request(frame, partial(_counted, throttle_at))


def _counted(throttle_at: int, frame: bytes) -> Outcome:
    at = throttle_at if throttle_at >= 0 else len(frame) + throttle_at
    (throttle_ms,) = _INT32.unpack_from(frame, at)
    return Outcome(1, throttle_ms)
