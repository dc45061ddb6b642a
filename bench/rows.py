"""The loads: what is asked, by how many connections, how many requests deep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bench import frames
from bench.frames import Request

FETCH_BYTES: Final = 500_000
"""What a fetch finds: one record of this size."""
SMALL_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Topics:
    """What the broker was prepared with."""

    written: str
    """Produced to; its retention is short."""
    read: UUID
    """Fetched from: id of a topic with one record of FETCH_BYTES."""
    read_small: UUID
    """The same with one record of SMALL_BYTES."""


@dataclass(frozen=True, slots=True)
class Row:
    """A load. Each connection keeps `depth` requests under way."""

    name: str
    """On the command line and in JSON."""
    title: str
    connections: int
    depth: int
    request: Callable[[Topics], Request]
    payload_bytes: int = 0
    """Records in a request or its response; 0 where there are none to speak of."""
    client_ids: int = 1
    """Each request comes from the next of so many."""

    def frames(self, topics: Topics) -> list[bytes]:
        """What is sent, in turn; all of one length."""
        return frames.spread(self.request(topics).frame, self.client_ids)


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
    Row("metadata-8x16", "Metadata, 8 connections, 16 deep", 8, 16, _metadata),
    Row("produce-100b", "Produce 100 B, 4 connections, one at a time", 4, 1, _produce(100)),
    Row("produce-16kb", "Produce 16 KB, 4 connections, 5 deep", 4, 5, _produce(16_000), 16_000),
    Row("produce-500kb", "Produce 500 KB, 4 connections, 5 deep", 4, 5, _produce(500_000), 500_000),
    Row("fetch-100b", "Fetch 100 B, 4 connections, one at a time", 4, 1, _fetch_small),
    Row("fetch-500kb", "Fetch 500 KB, 4 connections, one at a time", 4, 1, _fetch, FETCH_BYTES),
)
