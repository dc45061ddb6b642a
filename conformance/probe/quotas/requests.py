"""The requests of the profile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from weir.conformance.probe.requests.records import record_batch
from weir.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

TIMEOUT_MS: Final = 5000
RESPONSE_BYTES: Final = 1 << 30
CREATES_NOTHING: Final = 4
"""First version of Metadata that need not create missing topics."""
IDS_IN_PRODUCE: Final = 13
IDS_IN_FETCH: Final = 13
NAMED_TOPICS_IN_DELETE: Final = 6


def brokers() -> MetadataRequest:
    """Ask for the brokers and no topics (from v1 on)."""
    return MetadataRequest(topics=[])


def metadata(version: int, topics: Iterable[str]) -> MetadataRequest:
    """Ask for these topics, without creating them if the version can say so."""
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=named, allow_auto_topic_creation=version < CREATES_NOTHING)


def produce(version: int, topic: str, topic_id: UUID, value_bytes: int, acks: int = 1) -> ProduceRequest:
    """Produce one record to partition 0."""
    records = record_batch(version, bytes(value_bytes), int(time.time() * 1000))
    partition = ProduceRequest.PartitionProduceData(index=0, records=records)
    made = ProduceRequest.TopicProduceData
    named = (
        made(topic_id=topic_id, partition_data=[partition])
        if version >= IDS_IN_PRODUCE
        else made(name=topic, partition_data=[partition])
    )
    return ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[named])


def fetch(version: int, topic: str, topic_id: UUID, partition_max_bytes: int) -> FetchRequest:
    """Fetch the first bytes of partition 0, without a session."""
    partition = FetchRequest.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=partition_max_bytes
    )
    made = FetchRequest.FetchTopic
    named = (
        made(topic_id=topic_id, partitions=[partition])
        if version >= IDS_IN_FETCH
        else made(topic=topic, partitions=[partition])
    )
    return FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=RESPONSE_BYTES, session_id=0, session_epoch=-1, topics=[named]
    )


def create_topics(topics: dict[str, int]) -> CreateTopicsRequest:
    """Create topics with one replica: name to number of partitions."""
    made = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for name, partitions in topics.items()
    ]
    return CreateTopicsRequest(topics=made, timeout_ms=TIMEOUT_MS)


def create_partitions(topic: str, count: int) -> CreatePartitionsRequest:
    """Give a topic this number of partitions."""
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[grown], timeout_ms=TIMEOUT_MS)


def delete_topics(version: int, topics: list[str]) -> DeleteTopicsRequest:
    if version >= NAMED_TOPICS_IN_DELETE:
        states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in topics]
        return DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)
    return DeleteTopicsRequest(topic_names=topics, timeout_ms=TIMEOUT_MS)
