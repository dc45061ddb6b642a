"""Exchanges in a Java process of their own: `java_records_worker.py < job.json > values.json`.

What a job holds is in `java_records.py`. Needs py4j.
"""

import base64
import json
import sys
import time
from typing import Any

from py4j.java_gateway import (
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)

_PATIENCE_S = 30
_POLL_MS = 200
_BYTES = "org.apache.kafka.common.serialization.ByteArray"


def exchange(java: Any, job: dict[str, Any], timed_poll: bool) -> list[str]:
    """Send the messages and read them again; base64, as they came."""
    produce(java, job)
    return consume(java, job, timed_poll)


def produce(java: Any, job: dict[str, Any]) -> None:
    """Send every message, wait for every answer."""
    config = {
        "acks": "all",
        "key.serializer": f"{_BYTES}Serializer",
        "value.serializer": f"{_BYTES}Serializer",
    }
    producer = java.org.apache.kafka.clients.producer.KafkaProducer(properties(java, job["config"] | config))
    record, number = java.org.apache.kafka.clients.producer.ProducerRecord, java.java.lang.Integer
    try:
        futures = [
            producer.send(record(job["topic"], number(0), None, base64.b64decode(message)))
            for message in job["messages"]
        ]
        for future in futures:
            future.get()
    finally:
        producer.close()


def consume(java: Any, job: dict[str, Any], timed_poll: bool) -> list[str]:
    """Read as many as were sent, from the partition's start."""
    kind = f"{_BYTES}Deserializer"
    config = {"key.deserializer": kind, "value.deserializer": kind, "enable.auto.commit": "false"}
    consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(properties(java, job["config"] | config))
    values: list[str] = []
    try:
        partitions = java.java.util.ArrayList()
        partitions.add(java.org.apache.kafka.common.TopicPartition(job["topic"], 0))
        consumer.assign(partitions)
        consumer.seekToBeginning(partitions)
        wait = _POLL_MS if timed_poll else java.java.time.Duration.ofMillis(_POLL_MS)
        deadline = time.monotonic() + _PATIENCE_S
        while len(values) < len(job["messages"]) and time.monotonic() < deadline:
            values += polled(consumer.poll(wait))
    finally:
        consumer.close()
    return values


def polled(records: Any) -> list[str]:
    """The values of some records."""
    values, iterator = [], records.iterator()
    while iterator.hasNext():
        values.append(base64.b64encode(bytes(iterator.next().value())).decode())
    return values


def properties(java: Any, config: dict[str, str]) -> Any:
    """As Java's clients take them."""
    made = java.java.util.Properties()
    for key, value in config.items():
        made.setProperty(key, value)
    return made


def main() -> None:
    """Do the job on stdin."""
    job = json.loads(sys.stdin.readline())
    port = launch_gateway(
        classpath=job["classpath"],
        jarpath=job["jar"],
        java_path=job["java"],
        javaopts=["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *job["options"]],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    values = [exchange(gateway.jvm, one, job["timed_poll"]) for one in job["exchanges"]]
    gateway.shutdown()
    json.dump(values, sys.stdout)


if __name__ == "__main__":
    main()
