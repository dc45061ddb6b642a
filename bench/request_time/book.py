"""The requests that workloads are made of, in the versions that a broker speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench.request_time.calls import BrokerVersions, Call
from bench.request_time.topics import BIG, EMPTY, FETCH_BYTES, SMALL, WRITTEN, Batch
from calibration import bodies
from protocol.messages import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListGroupsRequest,
)
from quotas.costs.cost_fitting import UNPACKED

NEW_SESSION: Final = 0


class Book:
    """Builds the calls of a broker's clients."""

    def __init__(self, broker_versions: BrokerVersions) -> None:
        self.broker_versions = broker_versions

    def produce(
        self, client: str, batch: Batch, *, topic: str = WRITTEN, indexes: Sequence[int] = (0,), acks: int = 1
    ) -> Call:
        """The same batch to each of these partitions."""
        known = {"us_per_partition": len(indexes) - 1.0, "us_acks_all": float(acks == -1)}
        if batch.codec:
            known[UNPACKED[batch.codec]] = batch.unpacked_kb * len(indexes)
        body = bodies.produce({topic: indexes}, batch.records, acks)
        return self.broker_versions.call(client, body, known=known)

    def fetch(
        self,
        client: str,
        topic: str,
        indexes: Sequence[int] = (0,),
        *,
        offset: int = 0,
        at_most_bytes: int = FETCH_BYTES,
        max_wait_ms: int = 0,
        session: tuple[int, int] = bodies.NO_SESSION,
        version: int | None = None,
        converted: bool = False,
    ) -> Call:
        """Fetch from these partitions; `session` is the id and the epoch (KIP-227)."""
        body = bodies.fetch(
            topic, indexes, at_most_bytes, offset=offset, max_wait_ms=max_wait_ms, session=session
        )
        return self.broker_versions.call(client, body, version=version, converted=converted)

    def metadata(self, client: str, topics: Sequence[str] = (SMALL,)) -> Call:
        """Ask for brokers and these topics."""
        return self.broker_versions.call(client, bodies.metadata(topics))

    def api_versions(self, client: str) -> Call:
        """Ask for versions."""
        body = ApiVersionsRequest(client_software_name="weir-bench", client_software_version="1")
        return self.broker_versions.call(client, body)

    def heartbeat(self, client: str, group: str, member: str, generation: int) -> Call:
        """As a member of a group."""
        body = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        return self.broker_versions.call(client, body)

    def commit(self, client: str, group: str, indexes: Sequence[int] = (0,)) -> Call:
        """Commit offsets, as one who is no member."""
        return self.broker_versions.call(client, bodies.commit(EMPTY, indexes, group))

    def committed(self, client: str, group: str, indexes: Sequence[int] = (0,)) -> Call:
        """Ask for committed offsets."""
        return self.broker_versions.call(client, bodies.committed(EMPTY, indexes, group))

    def list_offsets(
        self, client: str, indexes: Sequence[int] = (0,), timestamp: int = bodies.LATEST
    ) -> Call:
        """Ask for offsets by time."""
        return self.broker_versions.call(client, bodies.list_offsets(EMPTY, indexes, timestamp))

    def leader_epoch(self, client: str, indexes: Sequence[int] = (0,)) -> Call:
        """Ask where an epoch of leaders ends."""
        return self.broker_versions.call(client, bodies.leader_epoch(EMPTY, indexes))

    def find_coordinator(self, client: str, group: str) -> Call:
        """Ask for a group's coordinator."""
        return self.broker_versions.call(client, FindCoordinatorRequest(key=group))

    def list_groups(self, client: str) -> Call:
        """Ask for all groups."""
        return self.broker_versions.call(client, ListGroupsRequest())

    def describe_groups(self, client: str, groups: Sequence[str]) -> Call:
        """Ask about groups."""
        body = DescribeGroupsRequest(groups=list(groups))
        return self.broker_versions.call(client, body)

    def describe_configs(self, client: str, topics: Sequence[str]) -> Call:
        """Ask for topics' settings."""
        return self.broker_versions.call(client, bodies.describe_configs(topics))

    def describe_cluster(self, client: str) -> Call:
        """Ask for the brokers."""
        body = DescribeClusterRequest(endpoint_type=1)
        return self.broker_versions.call(client, body)

    def hot(self, client: str, *, big: bool) -> Call:
        """Fetch what is there: one small record, or half a megabyte."""
        return self.fetch(client, BIG if big else SMALL)

    def paused(self, call: Call, pause_s: float) -> Call:
        """The same, so long after the answer to the one before."""
        return replace(call, pause_s=pause_s)
