"""All records of a topic, read by librdkafka."""

from __future__ import annotations

import time
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

PATIENCE_S = 60.0


class Stored(NamedTuple):
    key: bytes
    value: bytes


def records_in(bootstrap: str, topic: str) -> dict[int, list[Stored]]:
    """All records of a topic by partition, in the order of their offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    try:
        known = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        found: dict[int, list[Stored]] = {}
        for partition in known:
            begin = TopicPartition(topic, partition, OFFSET_BEGINNING)
            _low, high = consumer.get_watermark_offsets(begin, timeout=PATIENCE_S)
            consumer.assign([begin])
            found[partition] = []
            deadline_s = time.monotonic() + PATIENCE_S
            while len(found[partition]) < high:
                assert time.monotonic() < deadline_s
                for message in consumer.consume(1000, 0.5):
                    assert message.error() is None
                    found[partition].append(
                        Stored(bytes(message.key() or b""), bytes(message.value() or b""))
                    )
        return found
    finally:
        consumer.close()
