"""Consumer groups whose members come and go behind Weir: every record is handled once, whoever handles it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self, TypeAlias

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients import ClientError, create_topic
from tests.clients.test_clients import PAIRS, VERSIONS, marks
from tests.clients.worker_client import WorkerClient
from tests.clients.worker_member import WorkerMember
from tests.integration.test_records import GENEROUS, assert_no_complaint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from confluent_kafka import KafkaError, Message

    from tests.integration.conftest import StartWeir
    from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker]

PARTITIONS = 4
TIMEOUT_S = 90.0
PACE_S = 0.005  # between a producer's turns: while members wait for each other, it goes on
QUICK = {"heartbeat.interval.ms": 200, "session.timeout.ms": 20_000}
PROTOCOLS: dict[str, dict[str, str | int]] = {
    "eager": {"partition.assignment.strategy": "range"} | QUICK,
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"} | QUICK,  # KIP-429
    "consumer": {"group.protocol": "consumer"},  # KIP-848; its intervals are the broker's
}


class Member:
    """One consumer of the group; commits what it has handled whenever partitions are taken from it."""

    def __init__(self, bootstrap: str, group: str, topic: str, options: Mapping[str, str | int]) -> None:
        self.handled: list[tuple[int, bytes]] = []
        self._next: dict[int, int] = {}
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 2,
            }
            | dict(options)
        )
        self._consumer.subscribe([topic], on_revoke=self._give_back)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    @property
    def partitions(self) -> int:
        """How many it has now."""
        return len(self._consumer.assignment())

    def turn(self) -> None:
        """Handle one record, if there is one."""
        message = self._consumer.poll(0.01)
        if message is None:
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        if message.error() or partition is None or offset is None or not isinstance(value, bytes):
            raise ClientError(f"after {len(self.handled)} records: {message.error()}")
        self.handled.append((partition, value))
        self._next[partition] = offset + 1

    def _give_back(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        done = [
            TopicPartition(self._topic, each.partition, self._next.pop(each.partition))
            for each in partitions
            if each.partition in self._next
        ]
        if done:
            consumer.commit(offsets=done, asynchronous=False)


class Load:
    """Numbered records to every partition, a few per turn."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self._topic = topic
        self._errors: list[KafkaError] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 2})

    def turn(self) -> None:
        """One record to each partition."""
        for partition in range(PARTITIONS):
            value = b"%d" % self.sent
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
        self._producer.poll(PACE_S)
        self.sent += 1

    def finish(self) -> None:
        """Wait for every answer. Raises ClientError."""
        left = self._producer.flush(TIMEOUT_S)
        if left or self._errors:
            raise ClientError(f"{left} records unanswered; {self._errors[:3]}")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._errors.append(error)


def until(done: Callable[[], bool], what: str, *turns: Callable[[], None]) -> None:
    """Take turns until it is done. Raises ClientError."""
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise ClientError(f"waited {TIMEOUT_S:.0f} s for {what}")
        for turn in turns:
            turn()


Join: TypeAlias = "Callable[[], Member | WorkerMember]"


def handled_once_while_members_join_and_leave(bootstrap: str, topic: str, join: Join) -> None:
    """One member from beginning to end, a second one in between, records arriving all the time."""
    create_topic(bootstrap, topic, PARTITIONS)
    load = Load(bootstrap, topic)
    with join() as stays:
        until(lambda: len(stays.handled) >= 50, "the first member", load.turn, stays.turn)
        with join() as leaves:
            until(
                lambda: (
                    stays.partitions == leaves.partitions == PARTITIONS // 2 and len(leaves.handled) >= 20
                ),
                "two members to share the partitions",
                *(load.turn, stays.turn, leaves.turn),
            )
        until(lambda: stays.partitions == PARTITIONS, "one to have them all again", load.turn, stays.turn)
        load.finish()
        until(
            lambda: len(stays.handled) + len(leaves.handled) >= load.sent * PARTITIONS,
            "the last record",
            stays.turn,
        )
    for partition in range(PARTITIONS):
        values = [
            [int(value) for number, value in member.handled if number == partition]
            for member in (stays, leaves)
        ]
        assert sorted(values[0] + values[1]) == list(range(load.sent)), f"partition {partition}"
        assert [sorted(some) for some in values] == values, f"order in partition {partition}"


@pytest.mark.parametrize(
    ("version", "protocol"),
    [
        *((version, protocol) for version in VERSIONS for protocol in ("eager", "cooperative")),
        ("4.2.0", "consumer"),
    ],
)
def test_each_record_is_handled_once_by_librdkafka(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str, protocol: str
) -> None:
    weir = start_weir(kafka_cluster(version).bootstrap, GENEROUS)
    handled_once_while_members_join_and_leave(
        weir.bootstrap, topic, lambda: Member(weir.bootstrap, topic, topic, PROTOCOLS[protocol])
    )
    assert_no_complaint(weir.log)


@pytest.mark.parametrize(
    ("client", "version"),
    [
        pytest.param(client, version, id=f"{client.name}-{version}", marks=marks(client))
        for client, version in PAIRS
        if isinstance(client, WorkerClient)
    ],
)
def test_each_record_is_handled_once_by_python_clients(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, client: WorkerClient, version: str
) -> None:
    weir = start_weir(kafka_cluster(version).bootstrap, GENEROUS)
    config = {"heartbeat_interval_ms": 200, "session_timeout_ms": 20_000}
    handled_once_while_members_join_and_leave(
        weir.bootstrap, topic, lambda: WorkerMember(client, weir.bootstrap, topic, topic, config)
    )
    assert_no_complaint(weir.log)
