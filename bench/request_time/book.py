"""Build the requests of the workloads, in the versions that a broker supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.request_time.calls import BrokerVersions, Call
from bench.request_time.topics import BIG, EMPTY, FETCH_BYTES, SMALL, WRITTEN, Batch
from weir.calibration import bodies
from weir.protocol.messages import (
    ApiVersionsRequest,
    HeartbeatRequest,
)
from weir.quotas.costs.cost_fitting import UNPACKED

NEW_SESSION: Final = 0


class Book:
    """Builds the calls (requests with their features for the cost model) to one broker."""

    def __init__(self, broker_versions: BrokerVersions) -> None:
        self.broker_versions = broker_versions

    def produce(
        self, client: str, batch: Batch, *, topic: str = WRITTEN, indexes: Sequence[int] = (0,), acks: int = 1
    ) -> Call:
        """Return a call that produces the same batch to each of these partitions."""
        known = {"us_per_partition": len(indexes) - 1.0, "us_acks_all": float(acks == -1)}
        if batch.codec:
            known[UNPACKED[batch.codec]] = batch.weighed_kb * len(indexes)
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
        """Return a call that fetches from these partitions; `session` is the fetch session's id and epoch
        (KIP-227).
        """
        body = bodies.fetch(
            topic, indexes, at_most_bytes, offset=offset, max_wait_ms=max_wait_ms, session=session
        )
        return self.broker_versions.call(client, body, version=version, converted=converted)

    def metadata(self, client: str, topics: Sequence[str] = (SMALL,)) -> Call:
        """Return a call for the brokers and the metadata of these topics."""
        return self.broker_versions.call(client, bodies.metadata(topics))

    def api_versions(self, client: str) -> Call:
        """Return a call for the broker's API versions."""
        body = ApiVersionsRequest(client_software_name="weir-bench", client_software_version="1")
        return self.broker_versions.call(client, body)

    def heartbeat(self, client: str, group: str, member: str, generation: int) -> Call:
        """Return a heartbeat of a group's member."""
        body = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        return self.broker_versions.call(client, body)

    def commit(self, client: str, group: str, indexes: Sequence[int] = (0,)) -> Call:
        """Return a call that commits offsets of these partitions, as a client that is not a member of the
        group.
        """
        return self.broker_versions.call(client, bodies.commit(EMPTY, indexes, group))

    def committed(self, client: str, group: str, indexes: Sequence[int] = (0,)) -> Call:
        """Return a call for the group's committed offsets of these partitions."""
        return self.broker_versions.call(client, bodies.committed(EMPTY, indexes, group))

    def list_offsets(
        self, client: str, indexes: Sequence[int] = (0,), timestamp: int = bodies.LATEST
    ) -> Call:
        """Return a call for the offsets of these partitions at a timestamp, by default the end offsets."""
        return self.broker_versions.call(client, bodies.list_offsets(EMPTY, indexes, timestamp))

    def hot(self, client: str, *, big: bool) -> Call:
        """Return a fetch that the broker answers at once: with up to half a megabyte if `big`, else with one
        small record.
        """
        return self.fetch(client, BIG if big else SMALL)
