"""Partitions that move to another broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.integration.weir import Weir
from tests.java.kafka_tools import kafka_tool
from tests.kafka import Cluster
from tests.kafka.jars import version_tuple


def reassign(cluster: Cluster, weir: Weir, topics: Sequence[str], to: int, plan: Path) -> None:
    """Start to move partition 0 of each topic by Kafka's tool, through Weir where that asks brokers."""
    partitions = [{"topic": topic, "partition": 0, "replicas": [to]} for topic in topics]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    if version_tuple(cluster.version) < (1, 0):
        tool, where = "kafka.admin.ReassignPartitionsCommand", ("--zookeeper", cluster.zookeeper)
    else:
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        where = "--bootstrap-server", weir.bootstrap
    done = kafka_tool(cluster, tool, *where, "--reassignment-json-file", str(plan), "--execute")
    assert done.status == 0, done.out + done.err
