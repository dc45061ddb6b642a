"""Replication quotas with three throttled replicas, whose figures tests know."""

from __future__ import annotations

from typing import Final

from weir.proxy.admin.replication.status import REPLICAS_MAX, ReplicationStatus, read
from weir.quotas.replication.replication_quotas import Replica, ReplicaProgress, ReplicationQuotas
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

NOW_MS: Final = 10_000
TOPIC: Final = "orders"


def throttles() -> ReplicationThrottles:
    """Return throttles: broker 1 may send 1 MB/s, and each broker may fetch 2 MB/s. Partitions 0 and 1 are
    throttled at their leader 1; followers are 2 for partitions 0 and 2, and 3 for partition 1.
    """
    return ReplicationThrottles(
        {
            ConfigKey(ResourceType.BROKER, "1", Role.LEADER.rate_key): "1000000",
            ConfigKey(ResourceType.BROKER, "", Role.FOLLOWER.rate_key): "2000000",
            ConfigKey(ResourceType.TOPIC, TOPIC, Role.LEADER.replicas_key): "0:1,1:1",
            ConfigKey(ResourceType.TOPIC, TOPIC, Role.FOLLOWER.replicas_key): "0:2,1:3,2:2",
        }
    )


def quotas() -> ReplicationQuotas:
    """Return the quotas at NOW_MS, 10 s after the first fetches. Partition 0 is copying at 200 kB/s, 5,000 of
    20,000 offsets are done, and its offsets take 400 bytes. Partition 1 is held back, without any of its 300
    offsets. Partition 2 is in sync.
    """
    found = ReplicationQuotas(throttles())
    copying = progress(found, 0, 2, next_offset=0, high_watermark=20_000)
    copying.sent_bytes = 2_000_000
    copying.next_offset, copying.seen_ms = 5000, NOW_MS - 1000
    progress(found, 1, 3, next_offset=700, high_watermark=1000).is_held_back = True
    progress(found, 2, 2, next_offset=90, high_watermark=90)
    found.budget(Role.LEADER, 1).charge(3_000_000, 0)
    found.budget(Role.FOLLOWER, 2).charge(2_000_000, 0)
    return found


def progress(
    quotas: ReplicationQuotas, partition: int, follower: int, *, next_offset: int, high_watermark: int
) -> ReplicaProgress:
    """Add the progress of a replica that broker 1 leads, and return it."""
    added = ReplicaProgress(1, next_offset, 0)
    added.high_watermark = high_watermark
    quotas.progress[Replica(TOPIC, partition, follower)] = added
    return added


def snapshot(
    quotas: ReplicationQuotas | None, now_ms: int, replicas_max: int = REPLICAS_MAX
) -> ReplicationStatus:
    """Return the status at once, without the pauses of `read`."""
    steps = read(quotas, now_ms, replicas_max)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            status: ReplicationStatus = end.value
            return status
