"""Make the bodies of the requests that calibration sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from weir.protocol.messages import (
    DescribeConfigsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LATEST: Final = -1
NO_EPOCH: Final = -1
NO_SESSION: Final = (0, -1)
_TOPIC_RESOURCE: Final = 2


def produce(
    where: Mapping[str, Iterable[int]], records: bytes, acks: int = 1, timeout_ms: int = 30_000
) -> ProduceRequest:
    """Return a request that produces the same records to each of these partitions (`where`: topic to
    partition indexes).
    """
    data = [
        ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=records) for index in indexes
            ],
        )
        for topic, indexes in where.items()
    ]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=data)


def fetch(
    topic: str | UUID,
    indexes: Iterable[int],
    at_most_bytes: int,
    *,
    offset: int = 0,
    max_wait_ms: int = 0,
    session: tuple[int, int] = NO_SESSION,
) -> FetchRequest:
    """Return a request that fetches at most `at_most_bytes` from each of these partitions; `session` is the
    fetch session's id and epoch (KIP-227).
    """
    partitions = [
        FetchRequest.FetchPartition(
            partition=index,
            current_leader_epoch=NO_EPOCH,
            fetch_offset=offset,
            partition_max_bytes=at_most_bytes,
        )
        for index in indexes
    ]
    made = FetchRequest.FetchTopic
    named = (
        made(topic_id=topic, partitions=partitions)
        if isinstance(topic, UUID)
        else made(topic=topic, partitions=partitions)
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=at_most_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[named] if partitions else [],
    )


def metadata(topics: Iterable[str]) -> MetadataRequest:
    """Return a request for the brokers and the metadata of these topics, without creating missing topics."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def commit(
    topic: str, indexes: Iterable[int], group: str, member: str = "", generation: int = -1
) -> OffsetCommitRequest:
    """Return a request that commits offset 1 of each partition, by default as a client that is not a member
    of the group.
    """
    parts = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=1,
            committed_leader_epoch=NO_EPOCH,
            committed_metadata="",
        )
        for index in indexes
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        retention_time_ms=-1,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=parts)],
    )


def committed(topic: str, indexes: Iterable[int], group: str) -> OffsetFetchRequest:
    """Return a request for the group's committed offsets of these partitions."""
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))
    return OffsetFetchRequest(group_id=group, topics=[wanted])


def list_offsets(topic: str, indexes: Iterable[int], timestamp: int = LATEST) -> ListOffsetsRequest:
    """Return a request for each partition's offset at a timestamp (ms), by default for the end offset."""
    parts = [
        ListOffsetsRequest.ListOffsetsPartition(
            partition_index=index, current_leader_epoch=NO_EPOCH, timestamp=timestamp, max_num_offsets=1
        )
        for index in indexes
    ]
    wanted = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=parts)
    return ListOffsetsRequest(replica_id=-1, topics=[wanted])


def leader_epoch(topic: str, indexes: Iterable[int]) -> OffsetForLeaderEpochRequest:
    """Return a request for the end offset of leader epoch 0 of each partition."""
    parts = [
        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=index, current_leader_epoch=NO_EPOCH, leader_epoch=0
        )
        for index in indexes
    ]
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=parts)
    return OffsetForLeaderEpochRequest(replica_id=-2, topics=[wanted])


def describe_configs(topics: Iterable[str], keys: Sequence[str] | None = None) -> DescribeConfigsRequest:
    """Return a request for the settings `keys` of these topics; for all their settings if `keys` is None."""
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE,
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        for name in topics
    ]
    return DescribeConfigsRequest(resources=resources)
