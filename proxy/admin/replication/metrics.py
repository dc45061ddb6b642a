"""The metrics of replication quotas. docs/reference/metrics.md has Kafka's names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import Metric

from weir.proxy.admin.exposition import WEIR, Row
from weir.proxy.admin.replication.status import BrokerStatus, FollowerStatus, read
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.replication.throttles import Role

BROKER: Final = "broker"
"""Label for the broker's node id, in its role."""
_RECORDS: Final = {
    Role.LEADER: "records that throttled replicas fetched from the broker",
    Role.FOLLOWER: "records that the broker fetched for its throttled replicas",
}
"""Role of the broker → the records that a throttle limits."""


def families(quotas: ReplicationQuotas, now_ms: int) -> Iterator[Metric | None]:
    """Yield the metrics of replication quotas; yield None where the caller may serve sockets."""
    status = yield from read(quotas, now_ms, replicas_max=0)
    for role in Role:
        yield from _role(role, [broker for broker in status.brokers if broker.role == role.value])
    yield WEIR.gauge(
        "replication_throttled_partitions",
        "Throttled replicas that have fetched, by the broker's role: leader or follower.",
        [((str(broker.node_id), broker.role), broker.replicas) for broker in status.brokers],
        *(BROKER, "role"),
    )
    yield from _followers(status.followers)


def _role(role: Role, brokers: list[BrokerStatus]) -> Iterator[Metric]:
    name = f"{role.value}_replication_throttled"
    yield WEIR.gauge(
        f"{name}_rate",
        f"Rate (bytes/s) of {_RECORDS[role]}.",
        [_row(broker.node_id, broker.rate) for broker in brokers],
        BROKER,
    )
    yield WEIR.gauge(
        f"{name}_rate_limit",
        f"Limit (bytes/s) of the broker as {role.value}; +Inf without a limit.",
        [_row(broker.node_id, math.inf if broker.limit is None else broker.limit) for broker in brokers],
        BROKER,
    )
    yield WEIR.counter(
        f"{name}_bytes",
        f"Bytes of {_RECORDS[role]}.",
        [_row(broker.node_id, broker.charged_bytes) for broker in brokers],
        BROKER,
    )


def _followers(followers: Iterable[FollowerStatus]) -> Iterator[Metric]:
    yield WEIR.gauge(
        "replication_held_back_partitions",
        "The broker's throttled followers whose latest fetch got no records because of a throttle.",
        [_row(follower.node_id, follower.held_back) for follower in followers],
        BROKER,
    )
    yield WEIR.gauge(
        "replication_lag",
        "Sum of the offsets by which throttled followers on the broker lag behind their leaders.",
        [_row(follower.node_id, follower.lag) for follower in followers],
        BROKER,
    )
    yield WEIR.gauge(
        "replication_stalled_seconds",
        "Longest time for which a lagging throttled follower on the broker has received no records.",
        [_row(follower.node_id, follower.stalled_s) for follower in followers],
        BROKER,
    )


def _row(node_id: int, value: float) -> Row:
    return (str(node_id),), value
