"""Transactions and a share group of Java's clients. What a job holds and what is found is in `newest.py`."""

from __future__ import annotations

import time
from typing import Any

from tests.java.process import POLL_MS, consumer, do_job, producer, properties

_PATIENCE_S = 120
_ASIDE = 5
"""Number of records in the transaction that is aborted."""


def work(java: Any, job: dict[str, Any]) -> list[dict[str, list[int]]]:
    """Do the same with each configuration in turn; return the numbers of the records that were read."""
    found = []
    for number, config in enumerate(job["configs"]):
        names = [f"{job['topic']}-{number}-{kind}" for kind in ("transactions", "shared")]
        found.append(
            {
                "committed": _transactions(java, job, config, names[0]),
                "shared": _shared(java, job, config, names[1]),
            }
        )
    return found


def _transactions(java: Any, job: dict[str, Any], config: dict[str, str], topic: str) -> list[int]:
    """Commit half of the records, abort some others, commit the other half; read what was committed."""
    patient = {"transactional.id": topic, "transaction.timeout.ms": "600000"}  # on a busy machine
    client = producer(java, config | patient, "String")
    half = job["records"] // 2
    client.initTransactions()
    for numbers in (range(half), range(-_ASIDE, 0), range(half, 2 * half)):
        client.beginTransaction()
        _send(java, client, topic, numbers)
        if numbers[0] < 0:
            client.abortTransaction()
        else:
            client.commitTransaction()
    client.close()
    reader = consumer(java, {**config, "isolation.level": "read_committed"}, "String", topic)
    return _read(java, reader, job["records"])


def _shared(java: Any, job: dict[str, Any], config: dict[str, str], topic: str) -> list[int]:
    """Send records, and read them as the only member of a share group, from the beginning on."""
    with_strings = {**config, "key.deserializer": _STRINGS, "value.deserializer": _STRINGS, "group.id": topic}
    client = producer(java, config, "String")
    _send(java, client, topic, range(job["records"]))
    client.close()
    _read_earliest(java, config, topic)
    reader = java.org.apache.kafka.clients.consumer.KafkaShareConsumer(properties(java, with_strings))
    topics = java.java.util.ArrayList()
    topics.add(topic)
    reader.subscribe(topics)
    return _read(java, reader, job["records"])


_STRINGS = "org.apache.kafka.common.serialization.StringDeserializer"


def _read_earliest(java: Any, config: dict[str, str], group: str) -> None:
    admin = java.org.apache.kafka.clients.admin.Admin.create(properties(java, config))
    configs = java.org.apache.kafka.common.config.ConfigResource
    made = java.org.apache.kafka.clients.admin
    entry = made.ConfigEntry("share.auto.offset.reset", "earliest")
    ops, changes = java.java.util.ArrayList(), java.java.util.HashMap()
    ops.add(made.AlterConfigOp(entry, made.AlterConfigOp.OpType.SET))
    changes.put(configs(configs.Type.GROUP, group), ops)
    admin.incrementalAlterConfigs(changes).all().get()
    admin.close()


def _send(java: Any, client: Any, topic: str, numbers: range) -> None:
    """Send a record of a kilobyte for each number; wait for the acknowledgements."""
    record = java.org.apache.kafka.clients.producer.ProducerRecord
    sent = [
        client.send(record(topic, java.java.lang.Integer(0), None, f"{number:01000d}")) for number in numbers
    ]
    for each in sent:
        each.get()


def _read(java: Any, reader: Any, count: int) -> list[int]:
    """Read this number of records, and what comes within a second more."""
    found: list[int] = []
    deadline = time.monotonic() + _PATIENCE_S
    extra = 5
    while extra and time.monotonic() < deadline:
        polled = reader.poll(java.java.time.Duration.ofMillis(POLL_MS))
        records = polled.iterator()  # py4j's ConsumerRecords is no Python iterable
        while records.hasNext():
            found.append(int(records.next().value()))
        extra -= len(found) >= count
    reader.close()
    return found


if __name__ == "__main__":
    do_job(work)
