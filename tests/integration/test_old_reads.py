"""A rate of old reads in front of a real broker: one consumer replays a topic, another one is at its end."""

from __future__ import annotations

import time
from contextlib import closing
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
HOUR_MS: Final = 3_600_000
LIMIT: Final = f'[[quota]]\ngroup = "<all>"\nold_read_byte_rate = {RATE}\npacing = "smooth"\n'


def consumer(bootstrap: str, topic: str, offset: int) -> Consumer:
    made = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    made.assign([TopicPartition(topic, 0, offset)])
    return made


@pytest.mark.parametrize("version", ["1.1.1", "3.9.1", "4.4.0"])
def test_a_replay_keeps_to_the_rate_and_a_consumer_at_the_end_does_not_wait(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, LIMIT)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 100_000, "log_level": 0})
    hour_ago_ms = time.time_ns() // 1_000_000 - HOUR_MS
    for _record in range(OLD_RECORDS):
        producer.produce(topic, RECORD, partition=0, timestamp=hour_ago_ms)
    assert producer.flush(60) == 0
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
                sent_s = time.monotonic()
                producer.produce(topic, b"new", partition=0)
                producer.flush(10)
                assert tailing.poll(10) is not None
                waits_s.append(time.monotonic() - sent_s)
        assert began_s is not None
        took_s = time.monotonic() - began_s
    rate = OLD_RECORDS * len(RECORD) / took_s
    print(f"{version}: {rate:,.0f} bytes/s, the end waits {max(waits_s) * 1000:.0f} ms at most")
    assert rate == pytest.approx(RATE, rel=0.1)
    assert sorted(waits_s)[len(waits_s) * 9 // 10] < 0.5
    assert_no_complaint(weir.log)
