"""Requests and responses of the simulation, and where the fields are in them that Weir may write.

Frames are made once per kind and size, and numbered in place. The offsets are counted from Kafka's message
descriptions, not taken from the code under test.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from tests.wire.frames import request, response
from tests.wire.messages import id_of, identity
from weir.protocol.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from weir.protocol.values import Message

INT32: Final = Struct(">i")
FETCH_BOUNDS: Final = Struct(">iii")
"""max_wait_ms, min_bytes, max_bytes."""
SESSION: Final = Struct(">ii")
"""session_id, session_epoch."""
SHARE_RECORDS: Final = 500
"""max_records of a share fetch."""
HEAD_BYTES: Final = 16
"""At least the length, correlation id, tags and throttle time of a fetch response."""


class Kind(NamedTuple):
    api: str
    version: int

    @property
    def is_fetch(self) -> bool:
        """True if its responses are charged, not its requests."""
        return self.api in ("fetch", "share_fetch")

    @property
    def has_ids(self) -> bool:
        """True if it identifies topics by id (KIP-516)."""
        return self.api == "share_fetch" or (self.api in ("produce", "fetch") and self.version >= 13)

    @property
    def has_session(self) -> bool:
        """True if it has fetch sessions (KIP-227)."""
        return self.api == "fetch" and self.version >= 7

    @property
    def throttle_at(self) -> int | None:
        """Offset of throttle_time_ms in a response frame, from its end if negative; None: there is none."""
        return THROTTLE_AT[self]

    @property
    def uncharged_bytes(self) -> int:
        """Number of bytes of a response's length that a broker does not charge: its header's tags."""
        return self.api == "share_fetch" or self.version >= 12


THROTTLE_AT: Final[dict[Kind, int | None]] = {
    Kind("produce", 0): None,
    Kind("produce", 3): -4,
    Kind("produce", 7): -4,
    Kind("produce", 9): -5,  # tags are behind it
    Kind("produce", 13): -5,
    Kind("fetch", 4): 8,
    Kind("fetch", 7): 8,
    Kind("fetch", 11): 8,
    Kind("fetch", 12): 9,  # the header has tags
    Kind("fetch", 13): 9,
    Kind("share_fetch", 1): 9,
    Kind("metadata", 1): None,
    Kind("metadata", 5): 8,
    Kind("metadata", 9): 9,
    Kind("metadata", 12): 9,
    Kind("heartbeat", 0): None,
    Kind("heartbeat", 3): 8,
    Kind("heartbeat", 4): 9,
}
PART: Final = Kind("produce", 7)
"""Of the request in whose middle a client leaves."""
TEACHING: Final = Kind("metadata", 12)
"""Its response has the topic's id beside its name."""
KINDS: Final = tuple(kind for kind in THROTTLE_AT if kind not in (Kind("produce", 7), Kind("fetch", 11)))
"""Those of random scripts: the two others differ in nothing from their predecessors."""


def _produce(version: int, size: int, acks: int, topic: str) -> Message:
    data = ProduceRequest.PartitionProduceData(records=bytes(size))
    named = ProduceRequest.TopicProduceData(**identity(topic, version, "name"), partition_data=[data])
    return ProduceRequest(acks=acks, topic_data=[named])


def _fetch(version: int, _size: int, _acks: int, topic: str) -> Message:
    partitions = [FetchRequest.FetchPartition()]
    topics = [FetchRequest.FetchTopic(**identity(topic, version), partitions=partitions)]
    return FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 30, topics=topics)


def _fetched(version: int, size: int, topic: str, error: int) -> Message:
    partition = FetchResponse.PartitionData(records=bytes(max(size, 0)), error_code=error)
    found = FetchResponse.FetchableTopicResponse(**identity(topic, version), partitions=[partition])
    return FetchResponse(responses=[found] if size >= 0 else [])


def _share_fetch(_version: int, _size: int, _acks: int, topic: str) -> Message:
    """Nothing in it is to be capped."""
    named = ShareFetchRequest.FetchTopic(
        topic_id=id_of(topic), partitions=[ShareFetchRequest.FetchPartition()]
    )
    return ShareFetchRequest(
        group_id="g", member_id="m", max_bytes=1, max_records=SHARE_RECORDS, topics=[named]
    )


def _shared(_version: int, size: int, topic: str, error: int) -> Message:
    partition = ShareFetchResponse.PartitionData(records=bytes(max(size, 0)), error_code=error)
    found = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=id_of(topic), partitions=[partition])
    return ShareFetchResponse(responses=[found])


def _produced(version: int, _size: int, topic: str, error: int) -> Message:
    partition = ProduceResponse.PartitionProduceResponse(error_code=error)
    found = ProduceResponse.TopicProduceResponse(
        **identity(topic, version, "name"), partition_responses=[partition]
    )
    return ProduceResponse(responses=[found])


_REQUESTS: Final[dict[str, Callable[[int, int, int, str], Message]]] = {
    "produce": _produce,
    "fetch": _fetch,
    "share_fetch": _share_fetch,
    "metadata": lambda _version, _size, _acks, topic: MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)]
    ),
    "heartbeat": lambda *_: HeartbeatRequest(group_id="g"),
}
_RESPONSES: Final[dict[str, Callable[[int, int, str, int], Message]]] = {
    "produce": _produced,
    "fetch": _fetched,
    "share_fetch": _shared,
    "metadata": lambda _version, _size, topic, _error: MetadataResponse(
        topics=[MetadataResponse.MetadataResponseTopic(name=topic)]
    ),
    "heartbeat": lambda *_: HeartbeatResponse(),
}


@lru_cache(maxsize=4096)
def _asked(kind: Kind, client_id: str, size: int, acks: int, topic: str) -> bytes:
    return request(_REQUESTS[kind.api](kind.version, size, acks, topic), kind.version, 0, client_id.encode())


@lru_cache(maxsize=1024)
def _answered(kind: Kind, size: int, topic: str, error: int) -> bytes:
    return response(_RESPONSES[kind.api](kind.version, size, topic, error), kind.version, 0)


def asked(kind: Kind, client_id: str, number: int, size: int, acks: int, topic: str) -> bytearray:
    """Return a request frame; `size` is that of a produce request's records."""
    frame = bytearray(_asked(kind, client_id, size if kind.api == "produce" else 0, acks, topic))
    INT32.pack_into(frame, 8, number)
    return frame


def answered(
    kind: Kind, number: int, size: int, topic: str, throttle_ms: int, session_id: int, error: int = 0
) -> bytearray:
    """Return a response frame; `size` is that of a fetch's records, -1: no topic has any; `error` is the
    partition's.
    """
    frame = bytearray(_answered(kind, size if kind.is_fetch else 0, topic, error))
    INT32.pack_into(frame, 4, number)
    if kind.throttle_at is not None:
        INT32.pack_into(frame, kind.throttle_at % len(frame), throttle_ms)
    if kind.has_session:
        INT32.pack_into(frame, _session_id_at(kind), session_id)
    return frame


def bounds_at(kind: Kind, client_id: str) -> int:
    return 4 + 10 + len(client_id) + (kind.version >= 12) + 4  # length, header, tags, replica_id


def session_at(kind: Kind, client_id: str) -> int:
    return bounds_at(kind, client_id) + FETCH_BOUNDS.size + 1  # isolation_level


def share_records_at(client_id: str) -> int:
    """Return the offset of max_records: behind header, tags, group, member, epoch and FETCH_BOUNDS."""
    return 4 + 10 + len(client_id) + 1 + 2 + 2 + 4 + FETCH_BOUNDS.size


def throttle_ms(kind: Kind, frame: bytearray) -> int:
    """Return the throttle time that a response tells, 0 if its version has none."""
    at = kind.throttle_at
    return 0 if at is None else int(INT32.unpack_from(frame, at % len(frame))[0])


def session_id(kind: Kind, frame: bytearray) -> int:
    return int(INT32.unpack_from(frame, _session_id_at(kind))[0])


def emptied(kind: Kind, frame: bytearray, topic: str, error: int) -> bytearray:
    """Return a fetch response without its records: what a client gets that is over its quota."""
    (number,), session = INT32.unpack_from(frame, 4), session_id(kind, frame) if kind.has_session else 0
    told_ms = throttle_ms(kind, frame)
    without_topics = answered(kind, number, -1, topic, told_ms, session)
    return (
        without_topics
        if len(without_topics) == len(frame)
        else answered(kind, number, 0, topic, told_ms, session, error)
    )


def _session_id_at(kind: Kind) -> int:
    return 8 + (kind.version >= 12) + 4 + 2  # length and correlation id, tags, throttle time, error
