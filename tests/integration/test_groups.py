"""Consumer groups whose members come and go behind Weir: every record is handled once, whoever handles it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Lock
from types import TracebackType
from typing import Self, TypeAlias

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients import ClientError, create_topic
from tests.clients.exchange import part
from tests.clients.pairs import PAIRS, VERSIONS
from tests.clients.worker_client import WorkerClient
from tests.clients.worker_member import WorkerMember
from tests.integration.conftest import StartWeir
from tests.integration.traffic import ONCE, RdSender
from tests.integration.weir_log import GENEROUS, assert_no_complaint
from tests.kafka.fixtures import StartCluster
from tests.kafka.jars import version_tuple
from tests.kafka.releases import core_at

pytestmark = [pytest.mark.broker]

PARTITIONS = 4
TIMEOUT_S = 180.0  # a hang, also on a busy machine
QUICK = {"heartbeat.interval.ms": 200, "session.timeout.ms": 60_000}
PROTOCOLS: dict[str, dict[str, str | int]] = {
    "eager": {"partition.assignment.strategy": "range"} | QUICK,
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"} | QUICK,  # KIP-429
    "consumer": {"group.protocol": "consumer"},  # KIP-848; its intervals are the broker's
}
WORKERS = {"heartbeat_interval_ms": 200, "session_timeout_ms": 20_000}


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
        return len(self._consumer.assignment())

    def turn(self) -> None:
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


class Load(RdSender):
    """Numbered records to every partition, until no group wants more; a context manager."""

    def __init__(self, bootstrap: str, topic: str, version: str, groups: int) -> None:
        # Without idempotence, a record is stored twice when a busy broker answers too late.
        super().__init__(bootstrap, topic, PARTITIONS, {} if version == "0.10.2.2" else ONCE, name="")
        self._wanted, self._lock = groups, Lock()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def want_no_more(self) -> None:
        with self._lock:
            self._wanted -= 1
            if not self._wanted:
                self.stop()


def until(done: Callable[[], bool], what: str, *turns: Callable[[], None]) -> None:
    """Take turns until it is done. Raises ClientError."""
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise ClientError(f"waited {TIMEOUT_S:.0f} s for {what}")
        for turn in turns:
            turn()


Join: TypeAlias = "Callable[[], Member | WorkerMember]"


def handled_once_while_members_join_and_leave(load: Load, join: Join) -> None:
    """One member from beginning to end, a second one in between, records arriving all the time."""
    with ExitStack() as wanted:
        wanted.callback(load.want_no_more)  # also if no member can join: the other groups go on
        with join() as stays:
            until(lambda: len(stays.handled) >= 50, "the first member", load.check, stays.turn)
            with join() as leaves:
                until(
                    lambda: (
                        stays.partitions == leaves.partitions == PARTITIONS // 2 and len(leaves.handled) >= 20
                    ),
                    "two members to share the partitions",
                    *(load.check, stays.turn, leaves.turn),  # without records nobody handles 20
                )
            until(lambda: stays.partitions == PARTITIONS, "one to have them all again", stays.turn)
            wanted.close()
            while not load.has_ended:  # the other groups have time-outs of their own
                stays.turn()
            count = load.sent * PARTITIONS
            until(lambda: len(stays.handled + leaves.handled) >= count, "the last record", stays.turn)
    for partition in range(PARTITIONS):
        values = [
            [int(value) for number, value in member.handled if number == partition]
            for member in (stays, leaves)
        ]
        assert sorted(values[0] + values[1]) == list(range(load.sent)), f"partition {partition}"
        assert [sorted(some) for some in values] == values, f"order in partition {partition}"


def joins(version: str, bootstrap: str, topic: str) -> dict[str, Join]:
    """How a member joins each of the groups that are tried with a broker, by the group's name."""

    def librdkafka(group: str, options: Mapping[str, str | int]) -> Join:
        return lambda: Member(bootstrap, group, topic, options)

    def worker(client: WorkerClient) -> Join:
        return lambda: WorkerMember(client, bootstrap, f"{topic}-{client.name}", topic, WORKERS)

    found = {
        f"librdkafka-{protocol}": librdkafka(f"{topic}-{protocol}", options)
        for protocol, options in PROTOCOLS.items()
        if protocol != "consumer" or version_tuple(version) >= (4,)
    }
    return found | {
        client.name: worker(client)
        for client, broker in PAIRS
        if broker == version and isinstance(client, WorkerClient)
    }


@pytest.mark.oracle
@pytest.mark.timeout(3 * TIMEOUT_S)
@pytest.mark.parametrize("version", core_at(VERSIONS, core=("4.4.0",)))
def test_each_record_is_handled_once_while_members_join_and_leave_groups(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    """A group of each client, and of librdkafka one of each protocol; all read the same topic at once."""
    weir = start_weir(kafka_cluster(version).bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic, PARTITIONS)
    groups = joins(version, weir.bootstrap, topic)

    def share(group: str) -> None:
        with part(group):
            handled_once_while_members_join_and_leave(load, groups[group])

    with Load(weir.bootstrap, topic, version, len(groups)) as load, ThreadPoolExecutor(len(groups)) as pool:
        for shared in [pool.submit(share, group) for group in groups]:
            shared.result()
    assert_no_complaint(weir.log)
