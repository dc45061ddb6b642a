"""Copies of a partition to a new replica, as a test of replication throttles sees them: the follower's log on
disk, the tool that begins the copy, and the clients of other topics meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.clients import ClientError
from tests.integration.traffic import PATIENCE_S, Talker
from tests.java.kafka_tools import kafka_tool
from tests.kafka import Cluster
from tests.kafka.jars import version_tuple

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

SETTINGS: Final = {"log.retention.bytes": str(1 << 30), "log.retention.hours": "1"}
"""Settings of brokers that keep the data of these tests (200 MB per partition), but not without bound."""
RECORD_BYTES: Final = 5_000
BATCH_BYTES: Final = 50_000
"""Size of a batch. A leader cuts records at the limit of a fetch, and a follower discards the batch that is
cut, so large batches waste more of the rate.
"""
_LOOK_S: Final = 0.02
_TICK_S: Final = 0.02
_RECORDS_PER_TICK: Final = 10
_TIMED_BYTES: Final = 2_000
_CALM_S: Final = 3.0
_IN_SYNC_LOOK_S: Final = 0.1


def load(bootstrap: str, topic: str, size: int) -> None:
    """Fill partition 0 with records of `size` bytes in all, each of them different. Raises ClientError."""
    failed: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    options = {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": BATCH_BYTES, "acks": "all"}
    filling = os.urandom(RECORD_BYTES - 8)
    with closing(Producer(options)) as producer:
        for number in range(size // RECORD_BYTES):
            while True:
                try:
                    producer.produce(topic, b"%08d" % number + filling, partition=0, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(PATIENCE_S)
    if failed or left:
        raise ClientError(f"{left} records of {topic} unanswered, {len(failed)} failed: {failed[:3]}")


def log_directory(cluster: Cluster, node_id: int, topic: str, partition: int = 0) -> Path:
    return cluster.directory / "data" / f"log-{node_id}" / f"{topic}-{partition}"


def log_bytes(directory: Path) -> int:
    """Size of a replica's log on disk; 0 while there is none."""
    size = 0
    with suppress(FileNotFoundError), os.scandir(directory) as files:
        for file in files:
            if file.name.endswith(".log"):
                size += file.stat().st_size
    return size


def log_digest(directory: Path) -> tuple[int, str]:
    """Size and SHA-256 of a replica's log: all segment files, one after the other. A follower begins segments
    at other offsets than its leader, because it appends a whole fetch at once.
    """
    digest, size = hashlib.sha256(), 0
    for path in sorted(directory.glob("*.log")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                size += len(block)
    return size, digest.hexdigest()


class Sample(NamedTuple):
    at_s: float
    size: int


class Copy(Talker):
    def __init__(self, cluster: Cluster, topic: str, leader: int, follower: int) -> None:
        super().__init__(f"copy of {topic} at {follower}")
        self.topic = topic
        self.whole_bytes = log_bytes(log_directory(cluster, leader, topic))
        self.samples: list[Sample] = []
        """Samples with another size than the one before; the first is empty."""
        self._directory = log_directory(cluster, follower, topic)

    def talk(self) -> None:
        while not self._stopped.is_set():
            size = log_bytes(self._directory)
            if not self.samples or size != self.samples[-1].size:
                self.samples.append(Sample(time.monotonic(), size))
            self._stopped.wait(_LOOK_S)  # the pace of the samples; nothing is decided by it

    @property
    def size(self) -> int:
        return self.samples[-1].size if self.samples else 0

    @property
    def is_whole(self) -> bool:
        return self.size >= self.whole_bytes

    def wait_for(self, share: float, within_s: float = PATIENCE_S) -> None:
        """Return when this share of the log is there. Raises ClientError."""
        deadline_s = time.monotonic() + within_s
        while self.size < share * self.whole_bytes:
            self.check()
            if time.monotonic() > deadline_s:
                raise ClientError(f"{self.name} has {self.size} of {self.whole_bytes} bytes: {share} awaited")
            time.sleep(_LOOK_S)

    def at(self, share: float) -> Sample:
        """The first sample with this share of the log. Raises StopIteration."""
        return next(sample for sample in self.samples if sample.size >= share * self.whole_bytes)

    @property
    def began_s(self) -> float:
        """Time (s) of the first bytes. Raises StopIteration."""
        return next(sample.at_s for sample in self.samples if sample.size)

    @property
    def ended_s(self) -> float:
        """Time (s) at which the log was whole. Raises StopIteration."""
        return self.at(1.0).at_s

    @property
    def took_s(self) -> float:
        """Time (s) from the first bytes to the last. Raises StopIteration."""
        return self.ended_s - self.began_s

    def rate(self, first: float = 0.15, last: float = 0.9) -> float:
        """Bytes/s between two shares of the log. Raises StopIteration."""
        one, two = self.at(first), self.at(last)
        return (two.size - one.size) / (two.at_s - one.at_s)


class Timed(NamedTuple):
    records: int
    per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    def __str__(self) -> str:
        times = f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, max {self.max_ms:.1f} ms"
        return f"{self.records} records, {self.per_s:.1f} records/s, {times}"


class TimedProducer(Talker):
    """A client that produces 500 records of 2 KB a second with acks=all, and times each acknowledgement."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(f"producer to {topic}")
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._times: deque[tuple[float, float]] = deque()
        self._failed: list[str] = []

    def talk(self) -> None:
        options = {"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": 2}
        value, number, tick_s = os.urandom(_TIMED_BYTES), 0, time.monotonic()
        with closing(Producer(options)) as producer:
            while not self._stopped.is_set() and not self._failed:
                for _ in range(_RECORDS_PER_TICK):
                    partition = number % self._partitions
                    producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                    number += 1
                tick_s += _TICK_S
                while (left_s := tick_s - time.monotonic()) > 0:
                    producer.poll(left_s)
                producer.poll(0)
            producer.flush(PATIENCE_S)
        if self._failed:
            raise ClientError(f"{len(self._failed)} records failed: {self._failed[:3]}")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(str(error))
        else:
            latency_s = message.latency()
            assert latency_s is not None
            self._times.append((time.monotonic(), latency_s))

    def wait_until_calm(self, p99_ms: float, within_s: float = PATIENCE_S) -> None:
        """Return when the acknowledgements of the last seconds were faster than this: brokers have optimized
        their code, and nothing waits. Raises ClientError.
        """
        deadline_s = time.monotonic() + within_s
        began_s = time.monotonic()
        while True:
            self.check()
            time.sleep(_IN_SYNC_LOOK_S)
            now_s = time.monotonic()
            if now_s - began_s > _CALM_S and self.between(now_s - _CALM_S, now_s).p99_ms < p99_ms:
                return
            if now_s > deadline_s:
                raise ClientError(f"{self.name}: p99 is not below {p99_ms} ms within {within_s:.0f} s")

    def between(self, first_s: float, last_s: float) -> Timed:
        """The acknowledgements that came between two times (s)."""
        found = sorted(1000 * latency_s for at_s, latency_s in list(self._times) if first_s <= at_s <= last_s)
        assert found, "no record was acknowledged"
        p50, p99 = (found[int(len(found) * share)] for share in (0.5, 0.99))
        return Timed(len(found), len(found) / (last_s - first_s), p50, p99, found[-1])


class InSync(Talker):
    """Looks at the in-sync replicas of topics, several times a second, and notes those that lack one."""

    def __init__(self, bootstrap: str, topics: Iterable[str]) -> None:
        super().__init__("in-sync replicas")
        self._admin, self._topics = (
            AdminClient({"bootstrap.servers": bootstrap, "log_level": 2}),
            tuple(topics),
        )
        self.looks = 0
        """Number of looks at all topics."""
        self.shrunk: list[str] = []
        """Partitions with missing in-sync replicas, in words."""

    def talk(self) -> None:
        while not self._stopped.is_set():
            known = self._admin.list_topics(timeout=10).topics
            for topic in self._topics:
                for number, partition in known[topic].partitions.items():
                    if set(partition.isrs) != set(partition.replicas):
                        self.shrunk.append(f"{topic}-{number}: {partition.isrs} of {partition.replicas}")
            self.looks += 1
            self._stopped.wait(_IN_SYNC_LOOK_S)  # the pace of the looks; nothing is decided by it


class ReassignmentTool:
    """kafka-reassign-partitions of the cluster's release. All raise ClientError."""

    def __init__(self, cluster: Cluster, directory: Path, bootstrap: str = "") -> None:
        """`bootstrap` is where the tool begins; the tool of 0.10 goes to ZooKeeper."""
        self._cluster = cluster
        self._plan = directory / "plan.json"
        self._where = ("--bootstrap-server", (bootstrap or cluster.bootstrap).partition(",")[0])
        if not is_driven_over_kafkas_protocol(cluster.version):
            self._where = ("--zookeeper", cluster.zookeeper)

    def execute(self, plan: Mapping[str, list[int]], throttle: int | None = None) -> str:
        """Give partition 0 of each topic these replicas; return what the tool printed."""
        partitions = [
            {"topic": topic, "partition": 0, "replicas": replicas} for topic, replicas in plan.items()
        ]
        self._plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return self._call("--execute", *(() if throttle is None else ("--throttle", str(throttle))))

    def verify(self) -> str:
        """Ask until the reassignment is complete, which removes its throttle; return the last answer."""
        deadline_s = time.monotonic() + PATIENCE_S
        while "in progress" in (said := self._call("--verify")):
            if time.monotonic() > deadline_s:
                raise ClientError(said)
        return said

    def _call(self, *arguments: str) -> str:
        main_class = "kafka.admin.ReassignPartitionsCommand"
        if version_tuple(self._cluster.version) >= (3, 5):
            main_class = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        said = kafka_tool(
            self._cluster, main_class, *self._where, "--reassignment-json-file", str(self._plan), *arguments
        )
        if said.status != 0 or "failed" in said.out:
            raise ClientError(f"{arguments}: status {said.status}\n{said.out}\n{said.err[-2000:]}")
        return said.out


def is_driven_over_kafkas_protocol(version: str) -> bool:
    return version_tuple(version) >= (2, 6)
