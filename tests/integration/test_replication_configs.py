"""kafka-configs and kafka-reassign-partitions, unmodified, set replication throttles that Weir keeps
(docs/how-to/replication.md).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.integration.conftest import StartWeir
from tests.integration.traffic import create_spread, delete_topic
from tests.java.config_tool import ADMIN, Call, Transcript, add, delete, kafka_configs, same, show
from tests.java.tools_process import Said, run_tool
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.ports import free_range

pytestmark = [pytest.mark.broker]

LEADER, FOLLOWER = "leader.replication.throttled", "follower.replication.throttled"
RELEASES: Final = {
    "2.8.2": "kafka.admin.ReassignPartitionsCommand",
    "3.9.1": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}
"""Release → main class of its kafka-reassign-partitions."""
TOOL_S: Final = 120.0
PATIENCE_S: Final = 60.0
Step = tuple[Call, tuple[str, ...] | None]
"""A call, and the texts that its description must have, or not have if they begin with "!"; None for a call
that describes nothing.
"""


def broker(node_id: int | None) -> Call:
    which = ("--entity-default",) if node_id is None else ("--entity-name", str(node_id))
    return ("--entity-type", "brokers", *which)


def story(one: int, topic: str) -> tuple[Step, ...]:
    """One life of throttles, which leaves nothing behind: each call, and what a description must show."""
    at_topic = ("--entity-type", "topics", "--entity-name", topic)
    cleaner = "log.cleaner.io.max.bytes.per.second"
    return (
        (show(broker(one)), ()),
        (show(at_topic), ()),
        (add(broker(one), f"{LEADER}.rate=1000000,{FOLLOWER}.rate=2000000"), None),
        (add(broker(None), f"{LEADER}.rate=3000000"), None),
        (show(broker(one)), (f"{LEADER}.rate=1000000", f"{FOLLOWER}.rate=2000000", f"{LEADER}.rate=3000000")),
        (show(broker(None)), (f"{LEADER}.rate=3000000",)),
        (add(broker(one), f"{LEADER}.rate=1500000,{cleaner}=1000000000"), None),
        (show(broker(one)), (f"{LEADER}.rate=1500000", f"{FOLLOWER}.rate=2000000", f"{cleaner}=1.0E9")),
        (add(at_topic, f"{LEADER}.replicas=[0:1,0:2],{FOLLOWER}.replicas=*,retention.ms=1000000"), None),
        (show(at_topic), (f"{LEADER}.replicas=0:1,0:2", f"{FOLLOWER}.replicas=*", "retention.ms=1000000")),
        (add(at_topic, f"{FOLLOWER}.replicas=[0:1]"), None),
        (show(at_topic), (f"{FOLLOWER}.replicas=0:1",)),
        (delete(broker(one), f"{LEADER}.rate,{cleaner}"), None),
        (show(broker(one)), (f"{FOLLOWER}.rate=2000000", f"!{LEADER}.rate=1500000", f"!{cleaner}")),
        (delete(broker(one), f"{FOLLOWER}.rate"), None),
        (delete(broker(None), f"{LEADER}.rate"), None),
        (delete(at_topic, f"{LEADER}.replicas,{FOLLOWER}.replicas"), None),
        (show(at_topic), (f"!{LEADER}", f"!{FOLLOWER}", "retention.ms=1000000")),
        (delete(at_topic, "retention.ms"), None),
        (show(broker(one)), ("!throttled",)),
        (show(broker(None)), ("!throttled",)),
        (show(at_topic), ("!retention.ms",)),
    )


BAD: Final = (
    (broker(1), f"{LEADER}.rate=fast"),
    (broker(1), f"{LEADER}.rate=-1"),
    (("--entity-type", "topics", "--entity-name", "TOPIC"), f"{LEADER}.replicas=[0-1]"),
    (("--entity-type", "topics", "--entity-name", "TOPIC"), f"{LEADER}.rate=1"),
    (("--entity-type", "topics", "--entity-name", "no-such-topic"), f"{LEADER}.replicas=[0:1]"),
)
"""Configurations that brokers refuse."""


def throttling(cluster: Cluster) -> tuple[str, ...]:
    """Options of Weir: it throttles the replication of this cluster, and anyone may alter quotas."""
    first = min(cluster.ports)
    port = free_range(len(cluster.ports))
    upstream = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in cluster.ports.items())
    return (
        *ADMIN,
        *("--set", f"replication_upstream={upstream}"),
        *("--set", f"replication_listen={first}@127.0.0.1:{port}"),
    )


def transcript(release: str, bootstrap: str, steps: Sequence[Step]) -> Transcript:
    """Each call, and what the tool said. A description is repeated until it shows what it must: a broker
    learns a moment later what the controller has stored.
    """
    found: Transcript = []
    for call, shows in steps:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            (said,) = kafka_configs(release, [("--bootstrap-server", bootstrap, *call)])
            if shows is None or all(_shows(said, what) for what in shows):
                break
            assert time.monotonic() < deadline_s, (call, shows, said)
        found.append((call, same(said)))
    return found


def _shows(said: Said, what: str) -> bool:
    return what[1:] not in said.out if what.startswith("!") else what in said.out


@pytest.mark.parametrize("release", RELEASES)
def test_kafka_configs_prints_equal_output_for_weirs_throttles_and_a_clusters(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, release: str
) -> None:
    cluster = kafka_cluster(release, brokers=2)
    weir = start_weir(cluster.bootstrap, options=throttling(cluster))
    nodes = sorted(cluster.ports)
    create_spread(cluster.bootstrap, topic, [nodes])
    calls = story(nodes[0], topic)
    own = transcript(release, cluster.bootstrap, calls)
    assert f"{LEADER}.rate=1500000" in str(own)
    assert all(said.status == 0 for _call, said in own), own
    assert transcript(release, weir.bootstrap, calls) == own
    assert "replication" not in weir.quota_file.read_text()

    for entity, configs in BAD:
        which = tuple(topic if part == "TOPIC" else part for part in entity)
        step = (add(which, configs), None)
        [(_, said)], [(_, through)] = (
            transcript(release, at, [step]) for at in (cluster.bootstrap, weir.bootstrap)
        )
        assert (through.status, said.status) == (1, 1), (said, through)
        if release != "2.8.2":  # ZooKeeper's brokers refuse bad values of topics by another error
            assert _error(through) == _error(said)
    delete_topic(cluster.bootstrap, topic)


def _error(said: Said) -> str:
    words = f"{said.out} {said.err}".replace(":", " ").split()
    errors = [word.rpartition(".")[2] for word in words if word.endswith("Exception")]
    return errors[-1] if errors else ""


@pytest.mark.parametrize("release", RELEASES)
def test_kafka_reassign_partitions_throttles_through_weir(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path, release: str
) -> None:
    cluster = kafka_cluster(release, brokers=2)
    weir = start_weir(cluster.bootstrap, options=throttling(cluster))
    one, two = sorted(cluster.ports)
    create_spread(cluster.bootstrap, topic, [[one]])
    plan = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": 0, "replicas": [two]}]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))

    def tool(*arguments: str) -> str:
        where = ("--bootstrap-server", weir.bootstrap, "--reassignment-json-file", str(plan))
        said = run_tool(release, RELEASES[release], (*where, *arguments), TOOL_S)
        assert said.status == 0, said
        return said.out

    printed = tool("--execute", "--throttle", "1234567")
    assert "Warning: You must run --verify periodically" in printed
    stored = weir.quota_file.read_text()
    for node_id in (one, two):
        assert f"broker = {node_id}" in stored
    assert stored.count("1234567") == 4 or stored.count("1.234567MB") == 4, stored
    assert f'topic = "{topic}"' in stored
    assert f'"0:{one}"' in stored
    assert f'"0:{two}"' in stored
    deadline_s = time.monotonic() + PATIENCE_S
    while "is complete" not in (printed := tool("--verify", "--preserve-throttles")):
        assert time.monotonic() < deadline_s, printed
    assert weir.quota_file.read_text() == stored
    printed = tool("--verify")
    assert "Clearing broker-level throttles" in printed
    assert "Clearing topic-level throttles" in printed
    assert "replication" not in weir.quota_file.read_text()
    delete_topic(cluster.bootstrap, topic)
