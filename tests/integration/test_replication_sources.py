"""Replication throttles that Kafka's own tools have set, as Weir's sources read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from tests.clients import create_topic
from tests.java.kafka_tools import kafka_tool
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from weir.proxy.addresses import Address
from weir.proxy.control.cluster.access import DIRECT
from weir.proxy.control.replication.broker_source import BrokerSource
from weir.proxy.control.replication.sources import SourceError, ThrottleSource
from weir.proxy.control.replication.zookeeper_source import ZooKeeperSource
from weir.proxy.control.zookeeper import ZooKeeperAddress
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

pytestmark = [pytest.mark.broker]

BROKER, TOPIC = ResourceType.BROKER, ResourceType.TOPIC
LEADER, FOLLOWER = Role.LEADER, Role.FOLLOWER
READ_S = 60.0


def tool(cluster: Cluster, main_class: str, *arguments: str) -> None:
    done = kafka_tool(cluster, main_class, *arguments)
    assert done.status == 0, done.out + done.err


def at_zookeeper(cluster: Cluster, main_class: str, *arguments: str) -> None:
    tool(cluster, main_class, "--zookeeper", cluster.zookeeper, *arguments)


def configure(cluster: Cluster, *arguments: str) -> None:
    tool(
        cluster,
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", cluster.bootstrap, "--alter", *arguments),
    )


def seen(source: ThrottleSource, is_enough: Callable[[ReplicationThrottles], bool]) -> ReplicationThrottles:
    """Follow the source until it has throttles that are enough; fail if it cannot be read."""
    found: list[ReplicationThrottles] = []

    async def follow() -> None:
        with trio.CancelScope() as scope:

            async def changed(throttles: ReplicationThrottles) -> None:
                found.append(throttles)
                if is_enough(throttles):
                    scope.cancel()

            def failed(error: SourceError) -> None:
                raise AssertionError(str(error))

            with trio.fail_after(READ_S):
                await source.follow(changed, failed)

    trio.run(follow)
    return found[-1]


def zookeeper_source(cluster: Cluster) -> ZooKeeperSource:
    return ZooKeeperSource(ZooKeeperAddress(cluster.zookeeper, None, 10.0))


def addresses(cluster: Cluster) -> list[Address]:
    return [Address("127.0.0.1", port) for port in cluster.ports.values()]


@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1"])
def test_throttles_that_kafkas_tools_write_to_zookeeper_are_read(
    fresh_cluster: StartCluster, tmp_path: Path, version: str
) -> None:
    """kafka-reassign-partitions sets rates of the brokers involved, and lists of the topic (KIP-73)."""
    cluster = fresh_cluster(version, brokers=2)
    source = zookeeper_source(cluster)
    create = ("--create", "--topic", "moved", "--replica-assignment", "0")
    at_zookeeper(cluster, "kafka.admin.TopicCommand", *create)
    assert seen(source, lambda _throttles: True) == ReplicationThrottles()
    plan = tmp_path / "plan.json"
    move = {"topic": "moved", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    execute = ("--reassignment-json-file", str(plan), "--execute", "--throttle", "1000000")
    at_zookeeper(cluster, "kafka.admin.ReassignPartitionsCommand", *execute)
    expected = {
        ConfigKey(BROKER, node_id, role.rate_key): "1000000" for node_id in ("0", "1") for role in Role
    } | {
        ConfigKey(TOPIC, "moved", LEADER.replicas_key): "0:0",
        ConfigKey(TOPIC, "moved", FOLLOWER.replicas_key): "0:1",
    }
    assert seen(source, lambda throttles: len(throttles) >= 6) == ReplicationThrottles(expected)
    broker = ("--alter", "--entity-type", "brokers", "--entity-name", "1")
    lower = ("--add-config", "follower.replication.throttled.rate=2000")
    at_zookeeper(cluster, "kafka.admin.ConfigCommand", *broker, *lower)
    expected[ConfigKey(BROKER, "1", FOLLOWER.rate_key)] = "2000"
    altered = ReplicationThrottles(expected)
    assert seen(source, lambda throttles: throttles == altered) == altered


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.2.0"])
def test_throttles_that_brokers_keep_are_read(fresh_cluster: StartCluster, version: str) -> None:
    cluster = fresh_cluster(version, brokers=2)
    first, second = map(str, cluster.ports)
    create_topic(cluster.bootstrap, "orders")
    brokers, topics = ("--entity-type", "brokers"), ("--entity-type", "topics")
    rates = "leader.replication.throttled.rate=1000,follower.replication.throttled.rate=2000"
    configure(cluster, *brokers, "--entity-name", first, "--add-config", rates)
    configure(
        cluster, *brokers, "--entity-name", second, "--add-config", "leader.replication.throttled.rate=3000"
    )
    configure(
        cluster, *brokers, "--entity-default", "--add-config", "follower.replication.throttled.rate=4000"
    )
    lists = "leader.replication.throttled.replicas=[0:0,0:1],follower.replication.throttled.replicas=*"
    configure(cluster, *topics, "--entity-name", "orders", "--add-config", lists)
    expected = ReplicationThrottles(
        {
            ConfigKey(BROKER, first, LEADER.rate_key): "1000",
            ConfigKey(BROKER, first, FOLLOWER.rate_key): "2000",
            ConfigKey(BROKER, second, LEADER.rate_key): "3000",
            ConfigKey(BROKER, "", FOLLOWER.rate_key): "4000",
            ConfigKey(TOPIC, "orders", LEADER.replicas_key): "0:0,0:1",
            ConfigKey(TOPIC, "orders", FOLLOWER.replicas_key): "*",
        }
    )
    source = BrokerSource(lambda: addresses(cluster), DIRECT, 10.0, 1.0)
    assert seen(source, lambda throttles: len(throttles) >= len(expected)) == expected


def test_rates_that_old_brokers_hide_are_logged_and_lists_are_read(fresh_cluster: StartCluster) -> None:
    """A broker 1.1.1 takes a rate for a secret, because it does not know the rate's type."""
    cluster = fresh_cluster("1.1.1")
    create_topic(cluster.bootstrap, "orders")
    rate = ("--add-config", "leader.replication.throttled.rate=1000")
    configure(cluster, "--entity-type", "brokers", "--entity-name", "0", *rate)
    replicas = ("--add-config", "leader.replication.throttled.replicas=0:0")
    orders = ("--alter", "--entity-type", "topics", "--entity-name", "orders")
    at_zookeeper(cluster, "kafka.admin.ConfigCommand", *orders, *replicas)
    source = BrokerSource(lambda: addresses(cluster), DIRECT, 10.0, 1.0)
    with capture_logs() as logs:
        found = seen(source, lambda throttles: len(throttles) > 0 and len(logs) > 0)
    assert found == ReplicationThrottles({ConfigKey(TOPIC, "orders", LEADER.replicas_key): "0:0"})
    (line,) = logs
    assert (line["broker"], line["config"]) == ("0", LEADER.rate_key)
    assert line["reason"] == "brokers hide the value: read it from ZooKeeper"
