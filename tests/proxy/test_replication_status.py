"""The status of replication quotas: the snapshot that GET /replication answers, and the metrics."""

from __future__ import annotations

import pytest
import trio

from tests.proxy.metrics_page import Page, registry_of, server
from tests.proxy.supervised import NoWorkers
from tests.proxy.throttled_replicas import NOW_MS, TOPIC, progress, quotas, snapshot, throttles
from weir.proxy.admin.exposition import render
from weir.proxy.admin.metrics import Sources, families
from weir.proxy.admin.replication.status import (
    REPLICAS_MAX,
    SLICE,
    BrokerStatus,
    FollowerStatus,
    ReplicaStatus,
    read,
)
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.server.server import Server
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.replication.throttles import NO_THROTTLES, ConfigKey, ResourceType, Role

__all__ = ["server"]  # a fixture


def test_the_status_has_rates_and_limits_by_broker_and_role() -> None:
    """3 MB and 2 MB in 10 s. Broker 3 has got nothing."""
    assert snapshot(quotas(), NOW_MS).brokers == [
        BrokerStatus(1, "leader", 1e6, rate=300_000, charged_bytes=3_000_000, replicas=2),
        BrokerStatus(2, "follower", 2e6, rate=200_000, charged_bytes=2_000_000, replicas=2),
        BrokerStatus(3, "follower", 2e6, rate=0, charged_bytes=0, replicas=1),
    ]


def test_the_status_shows_a_broker_whose_rate_was_removed_without_a_limit() -> None:
    of = quotas()
    of.use(NO_THROTTLES)
    assert [(broker.node_id, broker.limit) for broker in snapshot(of, NOW_MS).brokers] == [
        (1, None),
        (2, None),
    ]


def test_the_status_lists_replicas_that_are_not_in_sync_first() -> None:
    """Partition 0: 15,000 offsets of 400 bytes, 6 MB, are left; at 200 kB/s they take 30 s."""
    assert snapshot(quotas(), NOW_MS).replicas == [
        ReplicaStatus(
            *(TOPIC, 0, 1, 2),
            in_sync=False,
            held_back=False,
            lag=15_000,
            next_offset=5000,
            high_watermark=20_000,
            sent_bytes=2_000_000,
            rate=200_000,
            bytes_left=6e6,
            time_left_s=30,
            share_done=0.25,
            stalled_s=1,
        ),
        ReplicaStatus(
            *(TOPIC, 1, 1, 3),
            in_sync=False,
            held_back=True,
            lag=300,
            next_offset=700,
            high_watermark=1000,
            sent_bytes=0,
            rate=0,
            bytes_left=None,
            time_left_s=None,
            share_done=0.0,
            stalled_s=10,
        ),
        ReplicaStatus(
            *(TOPIC, 2, 1, 2),
            in_sync=True,
            held_back=False,
            lag=0,
            next_offset=90,
            high_watermark=90,
            sent_bytes=0,
            rate=0,
            bytes_left=0.0,
            time_left_s=0,
            share_done=1.0,
            stalled_s=0,
        ),
    ]


@pytest.mark.slow
def test_the_status_of_many_replicas_counts_all_and_lists_those_that_are_not_in_sync() -> None:
    """3,000 replicas are in sync; the last one seen lags."""
    of = every_partition(3000)
    progress(of, 3000, 2, next_offset=5, high_watermark=9)
    found = snapshot(of, NOW_MS)
    assert [replica.partition for replica in found.replicas] == [3000, *range(REPLICAS_MAX - 1)]
    assert found.hidden == 3001 - REPLICAS_MAX
    assert found.followers == [FollowerStatus(2, 3001, 3000, 0, lag=4, stalled_s=10)]


def test_the_status_of_many_replicas_is_read_in_steps() -> None:
    """While it is read, replicas fetch for the first time."""
    of = every_partition(4 * SLICE)
    for step, _ in enumerate(read(of, NOW_MS)):
        progress(of, 10_000 + step, 2, next_offset=0, high_watermark=0)
    assert step + 1 == 4 + REPLICAS_MAX / SLICE


def every_partition(number: int) -> ReplicationQuotas:
    """Return quotas under which this number of replicas of follower 2 are in sync, of a topic that is
    throttled as a whole.
    """
    key = ConfigKey(ResourceType.TOPIC, TOPIC, Role.FOLLOWER.replicas_key)
    of = ReplicationQuotas(throttles().altered({key: "*"}))
    for partition in range(number):
        progress(of, partition, 2, next_offset=5, high_watermark=5)
    return of


# The page


def sources(server: Server, of: ReplicationQuotas | None) -> Sources:
    return Sources(
        server, NoWorkers(), registry_of(), StoreHealth(lambda: 0.0), lambda: NOW_MS, replication=of
    )


def page(server: Server, of: ReplicationQuotas | None) -> Page:
    text, _ = trio.run(render, families(sources(server, of), ready=True), "text/plain")
    return Page(text)


# Metrics


def test_metrics_have_rates_limits_and_bytes_by_broker_and_role(server: Server) -> None:
    found = page(server, quotas())
    assert found.value("weir_leader_replication_throttled_rate", broker="1") == 300_000
    assert found.value("weir_leader_replication_throttled_rate_limit", broker="1") == 1e6
    assert found.value("weir_leader_replication_throttled_bytes_total", broker="1") == 3e6
    assert found.value("weir_follower_replication_throttled_rate", broker="2") == 200_000
    assert found.value("weir_follower_replication_throttled_rate_limit", broker="2") == 2e6
    assert found.value("weir_follower_replication_throttled_bytes_total", broker="2") == 2e6
    assert len(found.rows("weir_leader_replication_throttled_rate")) == 1
    assert len(found.rows("weir_follower_replication_throttled_rate")) == 2


def test_replication_metrics_exist_only_with_replication_listeners(server: Server) -> None:
    names = {name for name, _labels in page(server, None).samples}
    assert not any("replication" in name for name in names)


def test_a_replication_rate_is_measured_over_its_samples() -> None:
    """Kafka's SimpleRate forgets a sample N windows after its last event; the window is at least one."""
    quotas = ReplicationQuotas(num_samples=2, window_s=3)
    quotas.use(throttles())
    budget = quotas.budget(Role.LEADER, 1)
    budget.charge(100_000_000, now_ms=0)
    assert budget.allowed_bytes(now_ms=5999) < 0
    assert budget.allowed_bytes(now_ms=6000) == 3 * budget.limit
