"""Build the fetches of a follower: the full fetch that begins a fetch session (KIP-227), and the incremental
fetch that follows it again and again.

The version and the limits are those of a Kafka 3.9 broker with its defaults (replica.fetch.*).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from bench import frames
from bench.frames import Request
from weir.protocol.messages import FetchRequest

FOLLOWER: Final = 1
"""Node id of the follower."""
PARTITION_BYTES: Final = 1 << 20
FETCH_BYTES: Final = 10 << 20
MAX_WAIT_MS: Final = 500
SESSION_ID: Final = 0x57454952
"""Session id in incremental fetches, which the load generator replaces."""
NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
FIRST_EPOCH: Final = 1


def full(topic_id: UUID, partitions: int) -> Request:
    """Return a full fetch of these many partitions from offset 0, which begins a session."""
    return _fetch(topic_id, range(partitions), NO_SESSION, FULL_EPOCH)


def incremental(topic_id: UUID, partitions: int) -> Request:
    """Return an incremental fetch that names the first partitions of the topic: those whose fetch offset
    would have changed, had the follower kept the records.
    """
    return _fetch(topic_id, range(partitions), SESSION_ID, FIRST_EPOCH)


def _fetch(topic_id: UUID, indexes: Iterable[int], session_id: int, epoch: int) -> Request:
    partitions = [
        FetchRequest.FetchPartition(
            partition=index,
            current_leader_epoch=0,
            fetch_offset=0,
            log_start_offset=0,
            partition_max_bytes=PARTITION_BYTES,
        )
        for index in indexes
    ]
    body = FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=FOLLOWER),
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=partitions)],
    )
    return frames.request(frames.FETCH_VERSION, body)
