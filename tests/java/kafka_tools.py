"""Kafka's own command-line tools, and what they print as values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.clients.model import ClientError
from tests.java.tools_process import Said, can_run, run_tool
from tests.kafka.jars import version_tuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kafka import Cluster

_SENT = re.compile(r"^(\d+) records sent, .*99\.9th", re.MULTILINE)
_CONSUMED = re.compile(r"^[-\d]+ [:\d]+, [-\d]+ [:\d]+, [\d.]+, [\d.]+, (\d+), ", re.MULTILINE)
_TOOL_S = 120.0


def kafka_tool(cluster: Cluster, main_class: str, *arguments: str) -> Said:
    """Call a tool of a cluster's release. Raises ClientError, or subprocess.TimeoutExpired before 1.0."""
    if can_run(cluster.version):
        return run_tool(cluster.version, main_class, arguments, _TOOL_S)
    done = cluster.run(main_class, *arguments, timeout_s=_TOOL_S)
    return Said(done.returncode, done.stdout, done.stderr)


class KafkaTools:
    """The tools of `cluster`'s release, pointed at `bootstrap`. All raise ClientError.

    Release 0.10.2.2 has no kafka-topics here: that one talks to ZooKeeper.
    """

    def __init__(self, cluster: Cluster, bootstrap: str) -> None:
        self._cluster = cluster
        self._bootstrap = bootstrap
        self._old = version_tuple(cluster.version) < (3, 0)
        self._new_consumer = ["--new-consumer"] if version_tuple(cluster.version) < (2, 0) else []

    def run(self, main_class: str, *arguments: str) -> str:
        """What the tool printed; of 0.10.2.2, the last line of a table may run into a line of the log."""
        done = kafka_tool(self._cluster, main_class, *arguments)
        if done.status != 0:
            said = f"{done.out[-2000:]}\n{done.err[-2000:]}"
            raise ClientError(f"{main_class} ended with status {done.status}:\n{said}")
        return done.out

    # kafka-producer-perf-test, kafka-consumer-perf-test

    def produce(
        self, topic: str, count: int, size: int, *options: str, config: Mapping[str, str] | None = None
    ) -> int:
        """Send `count` records of `size` bytes; how many it says were sent."""
        properties = {"bootstrap.servers": self._bootstrap, "acks": "all"} | dict(config or {})
        arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(size)]
        arguments += ["--throughput", "-1", *options]
        arguments += ["--producer-props", *(f"{key}={value}" for key, value in properties.items())]
        return _number(_SENT, self.run("org.apache.kafka.tools.ProducerPerformance", *arguments))

    def consume(self, topic: str, count: int, group: str, *options: str) -> int:
        """Read the topic from its start as a member of `group`; how many records it says came."""
        arguments = ["--topic", topic, "--messages", str(count), "--group", group, *options]
        if self._old:
            arguments += ["--broker-list", self._bootstrap, *self._new_consumer]
            return _number(_CONSUMED, self.run("kafka.tools.ConsumerPerformance", *arguments))
        arguments += ["--bootstrap-server", self._bootstrap, "--timeout", "60000"]
        return _number(_CONSUMED, self.run("org.apache.kafka.tools.ConsumerPerformance", *arguments))

    # kafka-topics

    def topics(self, *arguments: str) -> str:
        """kafka-topics with these arguments; before 2.2 it talks to ZooKeeper only."""
        name = "kafka.admin" if self._old else "org.apache.kafka.tools"
        return self.run(f"{name}.TopicCommand", "--bootstrap-server", self._bootstrap, *arguments)

    def list_topics(self) -> set[str]:
        return {line for line in self.topics("--list").splitlines() if re.fullmatch(r"[\w.-]+", line)}

    def partitions(self, topic: str) -> dict[int, int]:
        row = re.compile(rf"\tTopic: {re.escape(topic)}\tPartition: (\d+)\tLeader: (\d+)\t")
        return {
            int(number): int(leader)
            for number, leader in row.findall(self.topics("--describe", "--topic", topic))
        }

    # kafka-consumer-groups

    def groups(self, *arguments: str) -> str:
        name = "kafka.admin" if self._old else "org.apache.kafka.tools.consumer.group"
        return self.run(f"{name}.ConsumerGroupCommand", "--bootstrap-server", self._bootstrap, *arguments)

    def list_groups(self) -> set[str]:
        return {line for line in self.groups("--list").splitlines() if re.fullmatch(r"[\w.-]+", line)}

    def offsets(self, group: str, topic: str) -> dict[int, tuple[int, int]]:
        said = self.groups("--describe", "--group", group)
        row = re.compile(rf"\b{re.escape(topic)} +(\d+) +(\d+) +(\d+) +\d+ ")
        return {int(number): (int(current), int(end)) for number, current, end in row.findall(said)}


def _number(pattern: re.Pattern[str], said: str) -> int:
    found = pattern.findall(said)
    if len(found) != 1:
        raise ClientError(f"expected one result, found {len(found)} in:\n{said[-2000:]}")
    return int(found[0])
