"""Producer and consumer in a Java process of their own: `java_throttle_worker.py < job.json > found.json`.

What a job holds and what is found is in `java_throttle.py`. Needs py4j.
"""

import json
import sys
import time
from typing import Any

from py4j.java_gateway import (
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)

_PATIENCE_S = 60
_POLL_MS = 200
_SMALL_FETCH = "200"
"""In bytes: one record or two at a time, so that there are several fetches."""
_STRING = "org.apache.kafka.common.serialization.String"


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
    produced = produce(gateway.jvm, job)
    read, fetched = consume(gateway.jvm, job)
    gateway.shutdown()
    found: dict[str, float] = {"read": read}
    for what, metrics in (("produce", produced), ("fetch", fetched)):
        for kind in ("avg", "max"):
            found[f"{what}_{kind}"] = metrics[f"{what}-throttle-time-{kind}"]
    json.dump(found, sys.stdout)


def produce(java: Any, job: dict[str, Any]) -> dict[str, float]:
    """Send the records, wait for each answer; return the producer's metrics."""
    config = job["config"] | {
        "key.serializer": f"{_STRING}Serializer",
        "value.serializer": f"{_STRING}Serializer",
    }
    producer = java.org.apache.kafka.clients.producer.KafkaProducer(properties(java, config))
    record, number = java.org.apache.kafka.clients.producer.ProducerRecord, java.java.lang.Integer
    try:
        for sent in range(job["count"]):
            producer.send(record(job["topic"], number(0), None, f"{sent:0100}")).get()
        return throttle_metrics(producer, job["old_metrics"])
    finally:
        producer.close()


def consume(java: Any, job: dict[str, Any]) -> tuple[int, dict[str, float]]:
    """Read the records; return how many, and the consumer's metrics."""
    kind = f"{_STRING}Deserializer"
    config = job["config"] | {
        "key.deserializer": kind,
        "value.deserializer": kind,
        "enable.auto.commit": "false",
        "max.partition.fetch.bytes": _SMALL_FETCH,
    }
    consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(properties(java, config))
    read = 0
    try:
        partitions = java.java.util.ArrayList()
        partitions.add(java.org.apache.kafka.common.TopicPartition(job["topic"], 0))
        consumer.assign(partitions)
        consumer.seekToBeginning(partitions)
        wait = _POLL_MS if job["timed_poll"] else java.java.time.Duration.ofMillis(_POLL_MS)
        deadline = time.monotonic() + _PATIENCE_S
        while read < job["count"] and time.monotonic() < deadline:
            read += consumer.poll(wait).count()
        return read, throttle_metrics(consumer, job["old_metrics"])
    finally:
        consumer.close()


def throttle_metrics(client: Any, old: bool) -> dict[str, float]:
    """Those whose names end in throttle-time-avg or -max."""
    found, entries = {}, client.metrics().entrySet().iterator()
    while entries.hasNext():
        entry = entries.next()
        name = entry.getKey().name()
        if "-throttle-time-" in name:
            value = entry.getValue().value() if old else entry.getValue().metricValue()
            found[name] = float(value)
    return found


def properties(java: Any, config: dict[str, str]) -> Any:
    """As Java's clients take them."""
    made = java.java.util.Properties()
    for key, value in config.items():
        made.setProperty(key, value)
    return made


if __name__ == "__main__":
    main()
