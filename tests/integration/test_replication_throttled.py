"""Partitions that get one more replica under a replication throttle (KIP-73), at real clusters of three
brokers that reach each other through Weir.

`pytest -s` shows the figures: rates, times, latencies of a client of other topics.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.replica_copies import (
    SETTINGS,
    Copy,
    InSync,
    ReassignmentTool,
    TimedProducer,
    load,
    log_digest,
    log_directory,
)
from tests.integration.replicated import ReplicatedCluster
from tests.integration.traffic import create_spread, until
from tests.java.config_tool import ADMIN
from tests.kafka import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.measured]

MB: Final = 1_000_000
RATE: Final = 10 * MB
"""Throttle (bytes/s) of the long copies."""
WHOLE: Final = 200 * MB
MOVING, FREE, OTHER = "moving", "free", "other"
"""Topics: with a throttled replica; with a replica that is not listed; of a client."""
EVERYWHERE: Final = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
BEFORE_S: Final = 8.0
"""Time (s) for which a client is measured before the copy."""
EXPIRED_S: Final = 12.0
"""Time (s) after which a budget has forgotten a copy. An earlier copy may begin with the bytes that were not
used since (KIP-73 averages over 11 s).
"""
CALM_P99_MS: Final = 60.0
"""The client is measured once its acknowledgements are as fast as this."""
UNTHROTTLED: Final = 3.0
"""Least rate of a replica that is not throttled, as a multiple of the throttle."""


def throttle(role: str, rate: int, replicas: str) -> str:
    """The text of a quota file that throttles the topic MOVING in one role."""
    return f"""
[[replication]]
broker = "<default>"
{role}.replication.throttled.rate = {rate}
[[replication]]
topic = "{MOVING}"
{role}.replication.throttled.replicas = "{replicas}"
"""


def change_quotas(replicated: ReplicatedCluster, text: str) -> None:
    """Replace Weir's quota file at once, so that Weir never reads a part of it."""
    file = replicated.weir.quota_file
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


def say(text: str) -> None:
    print(text, flush=True)


def has_replicas(cluster: Cluster, topic: str, wanted: list[int]) -> None:
    """Return when these replicas of partition 0, and no others, are in sync. Raises ClientError."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})

    def in_sync() -> list[int]:
        return sorted(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs)

    until(lambda: in_sync() == sorted(wanted), lambda: f"{wanted} in sync, there are {in_sync()}")


def assert_equal_logs(cluster: Cluster, topic: str, one: int, two: int) -> None:
    first, second = (log_digest(log_directory(cluster, node_id, topic)) for node_id in (one, two))
    assert first == second, f"{topic} at {one} and {two}"


def assert_near(what: str, measured: float, expected: float, within: float) -> None:
    say(f"{what}: {measured:.4g}, expected {expected:.4g}, ratio {measured / expected:.4f}")
    assert abs(measured / expected - 1) <= within, what


@pytest.mark.core
def test_a_new_replica_of_40_mb_fills_at_the_throttle_of_kafkas_tool(tmp_path: Path) -> None:
    rate = 5 * MB
    options = (*ADMIN, "--set", "workers=2")
    with ReplicatedCluster("3.9.1", weir_options=options, settings=SETTINGS) as replicated:
        cluster = replicated.cluster
        create_spread(cluster.bootstrap, MOVING, [[0]])
        load(cluster.bootstrap, MOVING, 40 * MB)
        tool = ReassignmentTool(cluster, tmp_path, replicated.weir.bootstrap)
        with Copy(cluster, MOVING, 0, 1) as copy:
            tool.execute({MOVING: [0, 1]}, rate)
            copy.wait_for(1.0)
        assert_near("bytes/s", copy.rate(), rate, 0.1)
        has_replicas(cluster, MOVING, [0, 1])
        assert_equal_logs(cluster, MOVING, 0, 1)
        tool.verify()
        assert "replication" not in replicated.weir.quota_file.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("version", "role"), [("0.10.2.2", "leader"), ("3.9.1", "follower")])
def test_listed_replicas_keep_the_rate_of_one_role_and_others_are_not_slowed(
    version: str, role: str, tmp_path: Path
) -> None:
    """A second copy follows. Its throttle is lifted in the middle."""
    replicas = "0:0" if role == "leader" else "0:1,0:2"
    with ReplicatedCluster(version, throttle(role, RATE, replicas), settings=SETTINGS) as replicated:
        cluster = replicated.cluster
        create_spread(cluster.bootstrap, OTHER, EVERYWHERE)
        for topic, size in ((MOVING, WHOLE), (FREE, WHOLE)):
            create_spread(cluster.bootstrap, topic, [[0]])
            load(cluster.bootstrap, topic, size)
        tool = ReassignmentTool(cluster, tmp_path)
        with InSync(cluster.bootstrap, [OTHER]) as in_sync:
            with Copy(cluster, MOVING, 0, 1) as moving, Copy(cluster, FREE, 0, 1) as free:
                tool.execute({MOVING: [0, 1], FREE: [0, 1]})
                moving.wait_for(1.0)
            assert free.is_whole
            has_replicas(cluster, MOVING, [0, 1])
            tool.verify()
            time.sleep(EXPIRED_S)  # the time that the budgets count
            with Copy(cluster, MOVING, 0, 2) as lifted:
                tool.execute({MOVING: [0, 1, 2]})
                lifted.wait_for(0.3)
                change_quotas(replicated, "")
                lifted.wait_for(1.0)
            has_replicas(cluster, MOVING, [0, 1, 2])
        say(f"{version} {role}: {in_sync.looks} looks at in-sync replicas; whole in {moving.took_s:.2f} s")
        assert not in_sync.shrunk
        for node_id in (1, 2):
            assert_equal_logs(cluster, MOVING, 0, node_id)
        assert_equal_logs(cluster, FREE, 0, 1)
        assert_near("bytes/s of the listed replica", moving.rate(), RATE, 0.1)
        say(f"bytes/s of the replica that is not listed: {free.rate():.4g}, 200 MB in {free.took_s:.2f} s")
        assert free.rate() > UNTHROTTLED * RATE
        assert_near("bytes/s before the throttle is lifted", lifted.rate(0.12, 0.3), RATE, 0.25)
        say(f"bytes/s after the throttle is lifted: {lifted.rate(0.6, 0.99):.4g}")
        assert lifted.rate(0.6, 0.99) > UNTHROTTLED * RATE


class Story:
    """One reassignment by Kafka's tool with `--throttle`, and a client of another topic beside it."""

    def __init__(self, cluster: Cluster, directory: Path, bootstrap: str) -> None:
        """Run it. `bootstrap` is where the tool and the client begin."""
        create_spread(cluster.bootstrap, OTHER, EVERYWHERE, min_in_sync=2)
        create_spread(cluster.bootstrap, MOVING, [[0]])
        tool = ReassignmentTool(cluster, directory, bootstrap)
        with TimedProducer(bootstrap, OTHER, len(EVERYWHERE)):
            load(cluster.bootstrap, MOVING, WHOLE)
        with (
            InSync(cluster.bootstrap, [OTHER]) as in_sync,
            TimedProducer(bootstrap, OTHER, len(EVERYWHERE)) as producer,
            Copy(cluster, MOVING, 0, 1) as copy,
        ):
            producer.wait_until_calm(CALM_P99_MS)
            begin_s = time.monotonic()
            time.sleep(BEFORE_S)  # the time that is measured
            before_s = time.monotonic()
            tool.execute({MOVING: [0, 1]}, RATE)
            copy.wait_for(1.0)
            self.verified = tool.verify()
        self.copy = copy
        self.before = producer.between(begin_s, before_s)
        self.during = producer.between(copy.began_s, copy.ended_s)
        has_replicas(cluster, MOVING, [0, 1])
        assert_equal_logs(cluster, MOVING, 0, 1)
        assert in_sync.looks > copy.took_s
        assert not in_sync.shrunk

    def report(self, where: str) -> None:
        say(f"{where}: 200 MB in {self.copy.took_s:.2f} s, {self.copy.rate():.4g} bytes/s in the middle")
        say(f"{where}, client before: {self.before}")
        say(f"{where}, client during: {self.during}")


@pytest.mark.slow
@pytest.mark.alone
def test_kafkas_tool_throttles_through_weir_as_brokers_own_throttle_does(tmp_path: Path) -> None:
    """The client's latencies may double, grow by 20 ms, or be those beside the brokers' own throttle."""
    with ReplicatedCluster("3.9.1", weir_options=ADMIN, settings=SETTINGS) as replicated:
        weirs = Story(replicated.cluster, tmp_path, replicated.weir.bootstrap)
        quotas = replicated.weir.quota_file.read_text()
    weirs.report("Weir")
    with Cluster("3.9.1", brokers=3, settings=SETTINGS) as cluster:
        own = Story(cluster, tmp_path, cluster.bootstrap)
    own.report("brokers")
    assert "replication" not in quotas
    assert "Clearing topic-level throttles" in weirs.verified
    assert_near("bytes/s", weirs.copy.rate(), RATE, 0.1)
    assert_near("time (s) beside the brokers' own throttle", weirs.copy.took_s, own.copy.took_s, 0.15)
    assert weirs.during.per_s > 0.95 * weirs.before.per_s
    before_ms = weirs.before.p99_ms
    assert weirs.during.p99_ms <= max(2 * before_ms, before_ms + 20, own.during.p99_ms)


def leader_is_killed(replicated: ReplicatedCluster, copy: Copy) -> None:
    """Broker 0 starts again when the new replica has copied the log from broker 1."""
    replicated.cluster.kill(0)
    copy.wait_for(1.0)
    replicated.cluster.restart(0)


def follower_is_killed(replicated: ReplicatedCluster, _copy: Copy) -> None:
    replicated.cluster.kill(2)
    replicated.cluster.wait_until_ready()
    replicated.cluster.restart(2)


def weir_is_killed(replicated: ReplicatedCluster, _copy: Copy) -> None:
    os.kill(replicated.weir.pid, signal.SIGKILL)
    replicated.start_weir()


def throttle_is_changed(replicated: ReplicatedCluster, _copy: Copy) -> None:
    """The new throttle has double the rate, the other role, and one replica instead of all."""
    change_quotas(replicated, throttle("follower", 2 * RATE, "0:2"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("3.9.1", leader_is_killed),
        ("2.8.2", follower_is_killed),
        ("0.10.2.2", weir_is_killed),
        ("3.9.1", throttle_is_changed),
    ],
)
def test_a_throttled_copy_ends_with_equal_logs_after_a_fault(
    version: str, fault: Callable[[ReplicatedCluster, Copy], None], tmp_path: Path
) -> None:
    with ReplicatedCluster(version, throttle("leader", RATE, "*"), settings=SETTINGS) as replicated:
        cluster = replicated.cluster
        create_spread(cluster.bootstrap, MOVING, [[0, 1]], min_in_sync=1)
        load(cluster.bootstrap, MOVING, 100 * MB)
        tool = ReassignmentTool(cluster, tmp_path)
        with Copy(cluster, MOVING, 0, 2) as copy:
            tool.execute({MOVING: [0, 1, 2]})
            copy.wait_for(0.4)
            fault(replicated, copy)
            copy.wait_for(1.0)
        say(f"{version} {fault.__name__}: 100 MB in {copy.took_s:.2f} s")
        assert copy.took_s > 0.4 * 100 * MB / RATE, "it was throttled"
        has_replicas(cluster, MOVING, [0, 1, 2])
        for node_id in (1, 2):
            assert_equal_logs(cluster, MOVING, 0, node_id)
