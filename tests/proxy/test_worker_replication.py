"""Replication throttles at several workers: one rate, and one progress of each replica."""

from __future__ import annotations

import pytest

from tests.proxy.worker_rigs import running_worker
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.handlers.replication.replication import Replication
from weir.proxy.workers import replication as workers
from weir.proxy.workers.charges import ChargeReader, take
from weir.proxy.workers.messages import ReplicasSeen, UnknownTopic
from weir.quotas import QuotaTable
from weir.quotas.replication.replication_quotas import Replica, ReplicaProgress, ReplicationQuotas
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

NOW_MS = 1_000_000
THROTTLES = ReplicationThrottles(
    {
        ConfigKey(ResourceType.TOPIC, "orders", Role.LEADER.replicas_key): "*",
        ConfigKey(ResourceType.BROKER, "1", Role.LEADER.rate_key): "1000",
    }
)
REPLICA = Replica("orders", 0, 2)
TOPIC_ID = bytes(range(16))


def registry() -> QuotaRegistry:
    return QuotaRegistry(QuotaTable(), replication=ReplicationQuotas(THROTTLES))


def fetched(offset: int, now_ms: int, sent_bytes: int) -> ReplicaProgress:
    progress = ReplicaProgress(1, 0, NOW_MS)
    progress.high_watermark, progress.sent_bytes, progress.next_offset = 100, sent_bytes, offset
    progress.seen_ms = now_ms
    return progress


def test_bytes_that_a_broker_sends_through_one_worker_count_at_the_others_and_at_the_supervisor() -> None:
    one, other, supervisor = registry(), registry(), registry()
    one.replication.budget(Role.LEADER, 1).charge(3000, NOW_MS)
    charges = [charge for charge in ChargeReader(one).look(NOW_MS) if charge is not None]
    take(other, charges, NOW_MS, count=False)
    take(supervisor, charges, NOW_MS, count=True)
    own, told = (each.replication.budget(Role.LEADER, 1) for each in (one, other))
    assert told.allowed_bytes(NOW_MS + 1000) == own.allowed_bytes(NOW_MS + 1000) == -2000
    assert (told.charged, supervisor.replication.budget(Role.LEADER, 1).charged) == (0, 3000)


def test_the_progress_of_a_replica_is_that_of_its_latest_fetch_at_any_worker() -> None:
    one, other = ReplicationQuotas(THROTTLES), ReplicationQuotas(THROTTLES)
    told: dict[Replica, tuple[int, bool]] = {}
    one.progress[REPLICA] = fetched(40, NOW_MS + 20_000, 4000)
    for some in one.tell(told):
        other.hear(some)
    (heard,) = other.progress.values()
    assert heard.state() == one.progress[REPLICA].state()
    assert heard.share_done == 0.4
    assert list(one.tell(told)) == [[]]
    other.progress[REPLICA] = later = fetched(50, NOW_MS + 30_000, 5000)
    one.progress[REPLICA].is_fetched = False  # the follower has left this worker
    for some in one.tell(told):
        other.hear(some)
    assert other.progress[REPLICA] is later


def test_the_progress_of_a_replica_that_is_no_longer_throttled_is_not_heard() -> None:
    one, other = ReplicationQuotas(THROTTLES), ReplicationQuotas()
    one.progress[REPLICA] = fetched(40, NOW_MS, 4000)
    for some in one.tell({}):
        other.hear(some)
    assert other.progress == {}


@pytest.mark.trio
async def test_a_worker_obeys_throttles_and_tells_unknown_topics_and_progress() -> None:
    supervisor = Replication(ReplicationQuotas(THROTTLES))
    supervisor.topic_names = {TOPIC_ID: "orders"}
    async with running_worker(
        replication_upstream="1@127.0.0.1:9091", replication_listen="127.0.0.1:29092"
    ) as rig:
        replication = rig.worker.plane.replication
        rig.link.post(workers.throttled(supervisor))
        supervisor.quotas.progress[REPLICA] = fetched(40, rig.reactor.now_ms, 4000)
        for message in workers.all_seen(supervisor):
            rig.link.post(message)
        (told, *_others) = await rig.hear(ReplicasSeen)
        workers.hear(supervisor, told)
        assert replication.quotas.throttles == THROTTLES
        assert replication.name_of(TOPIC_ID, 13) == "orders"
        assert replication.quotas.progress.keys() == {REPLICA}
        assert replication.name_of(bytes(16), 13) == ""
        assert await rig.hear(UnknownTopic) == [UnknownTopic()]
