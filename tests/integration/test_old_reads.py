"""A rate of old reads in front of a real broker: one consumer replays a topic, another one is at its end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.conftest import StartWeir
from tests.integration.weir_log import assert_no_complaint
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker, pytest.mark.measured]

RATE: Final = 1_000_000
RECORD: Final = b"x" * 10_000
OLD_RECORDS: Final = 900
REPETITIONS, WAITS = 2, 300
REPLAY: Final = """
import sys
from confluent_kafka import Consumer, TopicPartition
bootstrap, topic, last = sys.argv[1:]
replaying = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
begin = TopicPartition(topic, 0, 0)
replaying.assign([begin])
while True:
    found = replaying.poll(1)
    if found is not None and found.error() is None:
        if found.offset() == 100:
            print("reads", flush=True)
        if found.offset() >= int(last):
            replaying.seek(begin)
"""
HOUR_MS: Final = 3_600_000
LIMIT: Final = f'[[quota]]\ngroup = "<all>"\nold_read_byte_rate = {RATE}\npacing = "smooth"\n'


def consumer(bootstrap: str, topic: str, offset: int) -> Consumer:
    made = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    made.assign([TopicPartition(topic, 0, offset)])
    return made


def written(producer: Producer, topic: str) -> None:
    """Write records of an hour ago."""
    hour_ago_ms = time.time_ns() // 1_000_000 - HOUR_MS
    for _record in range(OLD_RECORDS):
        producer.produce(topic, RECORD, partition=0, timestamp=hour_ago_ms)
    assert producer.flush(60) == 0


def wait_at_the_end_s(producer: Producer, topic: str, tailing: Consumer) -> float:
    """Write a record; return the time until the consumer at the end of the topic has it."""
    sent_s = time.monotonic()
    producer.produce(topic, b"new", partition=0)
    producer.flush(10)
    assert tailing.poll(10) is not None
    return time.monotonic() - sent_s


@pytest.mark.parametrize("version", ["1.1.1", "4.4.0"])
def test_a_replay_keeps_to_the_rate_and_a_consumer_at_the_end_does_not_wait(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, LIMIT)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 100_000, "log_level": 0})
    written(producer, topic)
    with (
        closing(consumer(weir.bootstrap, topic, 0)) as replaying,
        closing(consumer(weir.bootstrap, topic, OLD_RECORDS)) as tailing,
    ):
        replayed, waits_s, began_s = 0, list[float](), None
        while replayed < OLD_RECORDS:
            found = replaying.poll(0.01)
            if found is not None and found.error() is None:
                began_s = time.monotonic() if began_s is None else began_s
                replayed += 1
            if replayed % 50 == 0 and began_s is not None:
                waits_s.append(wait_at_the_end_s(producer, topic, tailing))
        assert began_s is not None
        took_s = time.monotonic() - began_s
    rate = OLD_RECORDS * len(RECORD) / took_s
    print(f"{version}: {rate:,.0f} bytes/s, the end waits {max(waits_s) * 1000:.0f} ms at most")
    assert rate == pytest.approx(RATE, rel=0.05)
    assert sorted(waits_s)[len(waits_s) * 9 // 10] < 0.5
    assert_no_complaint(weir.log)


@contextmanager
def replaying_in_a_process(bootstrap: str, topic: str) -> Iterator[None]:
    """Read the old records again and again, beside this process."""
    with subprocess.Popen(
        [sys.executable, "-c", REPLAY, bootstrap, topic, str(OLD_RECORDS - 1)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline()
            yield
        finally:
            process.kill()


def test_the_end_waits_no_longer_because_of_the_limit_of_a_replay(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """The same consumers in turns at a Weir with the limit and at one without: the 99th percentile of the
    waits is at most 10 % longer. On a busy machine two runs without a limit differ by more, so percentiles
    below 100 ms count as that; the replay's waits are a second long.
    """
    cluster = kafka_cluster("3.9.1")
    weirs = {"with": start_weir(cluster.bootstrap, LIMIT), "without": start_weir(cluster.bootstrap)}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 100_000, "log_level": 0})
    written(producer, topic)
    end, waits_s = OLD_RECORDS, {name: list[float]() for name in weirs}
    for name, weir in list(weirs.items()) * REPETITIONS:
        with (
            replaying_in_a_process(weir.bootstrap, topic),
            closing(consumer(weir.bootstrap, topic, end)) as tailing,
        ):
            wait_at_the_end_s(producer, topic, tailing)
            for _wait in range(WAITS):
                time.sleep(0.01)  # so that the waits are spread over several of the replay's
                waits_s[name].append(wait_at_the_end_s(producer, topic, tailing))
        end += WAITS + 1
    p99 = {name: sorted(its)[len(its) * 99 // 100] for name, its in waits_s.items()}
    print(f"99th percentile of the waits at the end (s): {p99}")
    assert p99["with"] <= 1.1 * max(p99["without"], 0.1)
