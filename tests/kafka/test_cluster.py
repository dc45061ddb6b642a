"""Clusters with ZooKeeper and with KRaft start, serve, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients import Librdkafka, create_topic
from tests.kafka import Cluster, ports, wire
from tests.kafka.settings import HOST
from tests.kafka.waiting import eventually, is_gone

pytestmark = pytest.mark.broker

METADATA, API_VERSIONS = 3, 18


@pytest.mark.parametrize("version", ["0.10.2.2", "4.4.0"])
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
