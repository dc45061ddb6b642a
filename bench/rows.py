"""The loads: a request, the number of connections that send it, and the requests in flight on each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bench import frames
from weir.calibration.frames import Request

FETCH_BYTES: Final = 500_000
"""Size (bytes) of the one record that a fetch of the large record returns."""
SMALL_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics that the broker was prepared with."""

    written: str
    """Name of the topic that produce requests write to; its retention is short."""
    read: UUID
    """Id of a topic to fetch from, with one record of FETCH_BYTES."""
    read_small: UUID
    """Id of a topic to fetch from, with one record of SMALL_BYTES."""


@dataclass(frozen=True, slots=True)
class Row:
    """A load. Each connection keeps `depth` requests in flight."""

    name: str
    """Name of the load on the command line and in JSON."""
    title: str
    connections: int
    depth: int
    request: Callable[[Topics], Request]
    payload_bytes: int = 0
    """Size (bytes) of the records in a request or its response; 0 if there are only small records, or no
    records.
    """
    client_ids: int = 1
    """Number of client-ids. Each request has the next client-id, in turn."""
    reconnects: bool = False
    """True if each request is sent on a new connection."""

    def frames(self, topics: Topics) -> list[bytes]:
        """Return the frames to send in turn, one per client-id; all have the same length."""
        return [self.request(topics).frame(each) for each in frames.client_ids(self.client_ids)]


def _metadata(topics: Topics) -> Request:
    return frames.metadata(topics.written)


def _produce(value_bytes: int) -> Callable[[Topics], Request]:
    return lambda topics: frames.produce(topics.written, value_bytes)


def _fetch(topics: Topics) -> Request:
    return frames.fetch(topics.read, 2 * FETCH_BYTES)


def _fetch_small(topics: Topics) -> Request:
    return frames.fetch(topics.read_small, 2 * FETCH_BYTES)


ROWS: Final = (
    Row("metadata-1", "Metadata, 1 connection, one at a time", 1, 1, _metadata),
    Row("metadata-16", "Metadata, 16 connections, one at a time", 16, 1, _metadata),
    Row("metadata-8x16", "Metadata, 8 connections, 16 in flight each", 8, 16, _metadata),
    Row("produce-100b", "Produce 100 B, 4 connections, one at a time", 4, 1, _produce(100)),
    Row("produce-16kb", "Produce 16 KB, 4 connections, 5 in flight each", 4, 5, _produce(16_000), 16_000),
    Row("produce-500kb", "Produce 500 KB, 4 connections, 5 in flight each", 4, 5, _produce(500_000), 500_000),
    Row("fetch-100b", "Fetch 100 B, 4 connections, one at a time", 4, 1, _fetch_small),
    Row("fetch-500kb", "Fetch 500 KB, 4 connections, one at a time", 4, 1, _fetch, FETCH_BYTES),
    Row(
        "connect-4",
        "New connections, 4 at a time, a Metadata request on each",
        4,
        1,
        _metadata,
        reconnects=True,
    ),
)
