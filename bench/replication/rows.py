"""The loads of a follower: the partitions that it fetches, and the records in a response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.frames import Request, record_batch
from bench.replication import fetches
from bench.rows import Row, Topics


@dataclass(frozen=True, slots=True)
class FollowerRow(Row):
    """A load of one follower with one fetch in flight."""

    partitions: int = 1
    """Number of partitions in the fetch session."""
    with_records: int = 1
    """Number of partitions that have records, the first ones."""
    batch_bytes: int = 0
    """Size (bytes) of the one record in a batch."""
    batches: int = 1
    """Number of batches in each partition that has records."""

    @property
    def topic(self) -> str:
        """Name of the topic, which no other load uses."""
        return f"bench-{self.name}"

    @property
    def batch(self) -> bytes:
        """The batch that each partition with records contains `batches` times."""
        return record_batch(bytes(self.batch_bytes))

    def frames(self, topics: Topics) -> list[bytes]:
        """Return the full fetch, and the incremental fetch that follows it. Their lengths differ."""
        topic_id = topics.replicated[self.topic]
        return [self.request(topics).frame, fetches.incremental(topic_id, self.with_records).frame]


def _row(
    name: str, title: str, partitions: int, with_records: int, batch_bytes: int, batches: int = 1
) -> FollowerRow:
    def full(topics: Topics) -> Request:
        return fetches.full(topics.replicated[row.topic], partitions)

    row = FollowerRow(
        name,
        title,
        connections=1,
        depth=1,
        request=full,
        payload_bytes=min(batch_bytes * batches, fetches.PARTITION_BYTES) * with_records,
        generator="bench.replication.follower",
        partitions=partitions,
        with_records=with_records,
        batch_bytes=batch_bytes,
        batches=batches,
    )
    return row


ROWS: Final = (
    _row("replica-1", "1 partition, 1 MiB of records", 1, 1, 500_000, 3),
    _row("replica-100", "100 partitions, 10 with 100 KB of records", 100, 10, 100_000),
    _row("replica-100-small", "100 partitions, 10 with 1 KB of records", 100, 10, 1_000),
)
"""A leader cuts records at the limit of a partition (1 MiB): in the first row the last batch is not whole."""
