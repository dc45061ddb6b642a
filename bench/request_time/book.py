"""The requests that workloads are made of, in the versions that a broker speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench.request_time.calls import Call, Dialect
from bench.request_time.features import UNPACKED
from bench.request_time.topics import BIG, EMPTY, FETCH_BYTES, SMALL, WRITTEN, Batch, produce_body
from protocol.messages import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)

LATEST: Final = -1
NO_EPOCH: Final = -1
NEW_SESSION: Final = 0
NO_SESSION: Final = -1
_TOPIC_RESOURCE: Final = 2


class Book:
    """Builds the calls of a broker's clients."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def produce(
        self, client: str, batch: Batch, *, topic: str = WRITTEN, indexes: Sequence[int] = (0,), acks: int = 1
    ) -> Call:
        """The same batch to each of these partitions."""
        known = {"us_per_partition": len(indexes) - 1.0, "us_acks_all": float(acks == -1)}
        if batch.codec:
            known[UNPACKED[batch.codec]] = batch.unpacked_kb * len(indexes)
        body = produce_body({topic: indexes}, batch, acks)
        return self.dialect.call(client, body, known=known)

    def fetch(
        self,
        client: str,
        topic: str,
        indexes: Sequence[int] = (0,),
        *,
        offset: int = 0,
        at_most_bytes: int = FETCH_BYTES,
        max_wait_ms: int = 0,
        session: tuple[int, int] = (0, NO_SESSION),
        version: int | None = None,
        converted: bool = False,
    ) -> Call:
        """Fetch from these partitions; `session` is the id and the epoch (KIP-227)."""
        partitions = [
            FetchRequest.FetchPartition(
                partition=index,
                current_leader_epoch=NO_EPOCH,
                fetch_offset=offset,
                partition_max_bytes=at_most_bytes,
            )
            for index in indexes
        ]
        body = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=at_most_bytes,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=partitions)] if partitions else [],
        )
        return self.dialect.call(client, body, version=version, converted=converted)

    def metadata(self, client: str, topics: Sequence[str] = (SMALL,)) -> Call:
        """Ask for brokers and these topics."""
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        body = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self.dialect.call(client, body)

    def api_versions(self, client: str) -> Call:
        """Ask for versions."""
        body = ApiVersionsRequest(client_software_name="weir-bench", client_software_version="1")
        return self.dialect.call(client, body)

    def heartbeat(self, client: str, group: str, member: str, generation: int) -> Call:
        """As a member of a group."""
        body = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        return self.dialect.call(client, body)

    def commit(self, client: str, group: str, indexes: Sequence[int] = (0,)) -> Call:
        """Commit offsets, as one who is no member."""
        parts = [
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=1,
                committed_leader_epoch=NO_EPOCH,
                committed_metadata="",
            )
            for index in indexes
        ]
        body = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            retention_time_ms=-1,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=EMPTY, partitions=parts)],
        )
        return self.dialect.call(client, body)

    def committed(self, client: str, group: str, indexes: Sequence[int] = (0,)) -> Call:
        """Ask for committed offsets."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=EMPTY, partition_indexes=list(indexes))
        body = OffsetFetchRequest(group_id=group, topics=[topic])
        return self.dialect.call(client, body)

    def list_offsets(self, client: str, indexes: Sequence[int] = (0,), timestamp: int = LATEST) -> Call:
        """Ask for offsets by time."""
        parts = [
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=index, current_leader_epoch=NO_EPOCH, timestamp=timestamp, max_num_offsets=1
            )
            for index in indexes
        ]
        body = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=EMPTY, partitions=parts)]
        )
        return self.dialect.call(client, body)

    def leader_epoch(self, client: str, indexes: Sequence[int] = (0,)) -> Call:
        """Ask where an epoch of leaders ends."""
        parts = [
            OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=index, current_leader_epoch=NO_EPOCH, leader_epoch=0
            )
            for index in indexes
        ]
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=EMPTY, partitions=parts)
        body = OffsetForLeaderEpochRequest(replica_id=-2, topics=[topic])
        return self.dialect.call(client, body)

    def find_coordinator(self, client: str, group: str) -> Call:
        """Ask for a group's coordinator."""
        return self.dialect.call(client, FindCoordinatorRequest(key=group))

    def list_groups(self, client: str) -> Call:
        """Ask for all groups."""
        return self.dialect.call(client, ListGroupsRequest())

    def describe_groups(self, client: str, groups: Sequence[str]) -> Call:
        """Ask about groups."""
        body = DescribeGroupsRequest(groups=list(groups))
        return self.dialect.call(client, body)

    def describe_configs(self, client: str, topics: Sequence[str]) -> Call:
        """Ask for topics' settings."""
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
            )
            for name in topics
        ]
        return self.dialect.call(client, DescribeConfigsRequest(resources=resources))

    def describe_cluster(self, client: str) -> Call:
        """Ask for the brokers."""
        body = DescribeClusterRequest(endpoint_type=1)
        return self.dialect.call(client, body)

    def hot(self, client: str, *, big: bool) -> Call:
        """Fetch what is there: one small record, or half a megabyte."""
        return self.fetch(client, BIG if big else SMALL)

    def paused(self, call: Call, pause_s: float) -> Call:
        """The same, so long after the answer to the one before."""
        return replace(call, pause_s=pause_s)
