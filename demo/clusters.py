"""Prepare the cluster behind Weir, mock or real, and the demonstration's topics in it."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from weir.demo.errors import DemoError
from weir.demo.subprocesses import running_module
from weir.proxy.config.config import ConfigError, parse_address

ANSWER_S: Final = 10.0
"""Timeout (s) for a response of the cluster."""
BROKERS_USED_MAX: Final = 3
TOPIC_CONFIG: Final = {
    "retention.bytes": str(16 * 1024 * 1024),
    "segment.bytes": str(8 * 1024 * 1024),
    "retention.ms": "600000",
}
"""Settings of a topic that stays small. Its retention empties it if this process is killed before deleting
it.
"""

Leaders: TypeAlias = dict[int, int]
"""One partition per broker: the partition's index by the node id of its leader."""


class Cluster:
    """An existing cluster. The demonstration creates topics with unique names, and deletes them at the
    end.
    """

    def __init__(self, upstream: str) -> None:
        """Query the node ids of the brokers at `upstream`. Raises DemoError if no broker answers."""
        self.upstream = upstream
        self._prefix = f"weir-demo-{secrets.token_hex(4)}"
        self._topics: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": upstream, "client.id": "weir-demo", "log_level": 0})
        try:
            self.node_ids = sorted(self._admin.list_topics(timeout=ANSWER_S).brokers)
        except KafkaException as error:
            raise DemoError(
                f"no Kafka broker answers at {upstream} within {ANSWER_S:g} s ({reason(error)}): "
                "check --upstream"
            ) from None

    def topic(self, name: str, brokers: int) -> tuple[str, Leaders]:
        """Create a topic with partitions at `brokers` brokers, or at all of them if the cluster has fewer;
        return its name and leaders. Raises DemoError.
        """
        topic = f"{self._prefix}-{name}"
        brokers = min(brokers, len(self.node_ids), BROKERS_USED_MAX)
        self._topics.append(topic)
        try:
            self._create(topic, brokers)
        except KafkaException as error:
            raise DemoError(f"cannot create topic {topic} at {self.upstream}: {reason(error)}") from None
        return topic, self._leaders(topic, brokers)

    def _create(self, topic: str, partitions: int) -> None:
        future = self._admin.create_topics([NewTopic(topic, partitions, 1, config=TOPIC_CONFIG)])[topic]
        try:
            future.result(ANSWER_S)
        except TimeoutError:
            raise DemoError(f"{self.upstream} does not create topics within {ANSWER_S:g} s") from None

    def _leaders(self, topic: str, wanted: int) -> Leaders:
        """Wait until the topic has `wanted` partitions, each with a leader; return one partition for each
        broker that leads any. Raises DemoError after `ANSWER_S` seconds.
        """
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            found = self._partitions(topic)
            if len(found) >= wanted and min(found.values()) >= 0:
                return {leader: partition for partition, leader in sorted(found.items(), reverse=True)}
            time.sleep(0.05)
        raise DemoError(
            f"topic {topic} has partitions without a leader after {ANSWER_S:g} s: check its brokers"
        )

    def _partitions(self, topic: str) -> dict[int, int]:
        """Return the node id of the leader of each partition of the topic, by partition index; -1 for a
        partition without a leader. Raises DemoError.
        """
        try:
            found = self._admin.list_topics(topic, timeout=ANSWER_S).topics[topic]
        except KafkaException as error:
            raise DemoError(f"{self.upstream} stopped answering: {reason(error)}") from None
        return {number: partition.leader for number, partition in found.partitions.items()}

    def delete_topics(self) -> None:
        """Delete the created topics; ignore a topic that cannot be deleted, because its retention
        empties it.
        """
        if self._topics:
            for future in self._admin.delete_topics(self._topics, operation_timeout=ANSWER_S).values():
                with suppress(TimeoutError):
                    future.exception(ANSWER_S)


class MockCluster(Cluster):
    """A mock cluster, which creates a topic when a producer asks for its metadata.

    The mock cluster assigns leaders at random. To find a topic with leaders at all brokers, `topic` tries
    several.
    """

    TRIES: Final = 50

    def __init__(self, upstream: str) -> None:
        """Query the node ids of the mock cluster's brokers. Raises DemoError if no broker answers."""
        super().__init__(upstream)
        self._asking = Producer({"bootstrap.servers": upstream, "client.id": "weir-demo", "log_level": 0})

    def topic(self, name: str, brokers: int) -> tuple[str, Leaders]:
        """Create topics until one has leaders at `brokers` brokers; return the topic's name, and one
        partition per broker. Raises DemoError if no attempt succeeds.
        """
        brokers = min(brokers, len(self.node_ids))
        for number in range(self.TRIES):
            topic = f"{name}-{number}"
            self._asking.list_topics(topic, timeout=ANSWER_S)
            leaders = self._leaders(topic, 1)
            if len(leaders) >= brokers:
                return topic, dict(sorted(leaders.items())[:brokers])
        raise DemoError("the mock cluster gives one broker no partition: try again")


@contextmanager
def real(upstream: str) -> Iterator[Cluster]:
    """Yield an existing Kafka cluster as `Cluster`; after the block, delete the topics that the demonstration
    created. Raises DemoError if no broker can be reached.
    """
    _check_reachable(upstream)
    cluster = Cluster(upstream)
    try:
        yield cluster
    finally:
        cluster.delete_topics()


def _check_reachable(upstream: str) -> None:
    """Connect to the upstream brokers until one accepts. librdkafka would retry longer and report less.
    Raises DemoError if none accepts.
    """
    failures = []
    for text in upstream.split(","):
        try:
            socket.create_connection(parse_address(text.strip(), "upstream"), ANSWER_S).close()
        except ConfigError as error:
            raise DemoError(str(error)) from None
        except OSError as error:
            failures.append(f"{text.strip()}: {(error.strerror or str(error)).lower()}")
        else:
            return
    raise DemoError(f"no upstream broker can be reached: {'; '.join(failures)}: check --upstream")


@contextmanager
def mock(folder: Path) -> Iterator[Cluster]:
    """Yield a mock cluster of three brokers, which runs until the block ends. Raises DemoError if it does not
    start.
    """
    log = folder / "mock.log"
    with running_module("weir.demo.mock_cluster", [], log) as process:
        assert process.stdout is not None
        upstream = process.stdout.readline().strip()
        if not upstream:
            said = log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
            raise DemoError(f"librdkafka's mock cluster did not start: {said}")
        yield MockCluster(upstream)


def reason(error: KafkaException) -> str:
    """Return the text of a KafkaException, without codes: the message that librdkafka or the broker gave."""
    inner = error.args[0] if error.args else None
    return inner.str() if isinstance(inner, KafkaError) else str(error)
