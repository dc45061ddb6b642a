"""Consumers in a Java process of their own: `java_fetches_worker.py < job.json > records.json`.

What a job holds is in `java_fetches.py`. Needs py4j.
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

_POLL_MS = 10
_AHEAD = 50
"""A consumer begins when those before it have read that many records each."""
_KIND = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class Reader:
    """A consumer with partitions of its own, at their beginning."""

    def __init__(self, java: Any, job: dict[str, Any], number: int) -> None:
        share = job["shares"][number]
        self.left = job["count"] * len(share)
        self.records: list[tuple[int, int, str]] = []
        self._wait = java.java.time.Duration.ofMillis(_POLL_MS)
        config = job["config"] | {"client.id": f"java-{number}", "enable.auto.commit": "false"}
        config |= {"key.deserializer": _KIND, "value.deserializer": _KIND}
        properties = java.java.util.Properties()
        for key, value in config.items():
            properties.setProperty(key, value)
        self._consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
        partitions = java.java.util.ArrayList()
        for partition in share:
            partitions.add(java.org.apache.kafka.common.TopicPartition(job["topic"], partition))
        self._consumer.assign(partitions)
        self._consumer.seekToBeginning(partitions)

    def poll(self) -> None:
        """Take the records that are here."""
        iterator = self._consumer.poll(self._wait).iterator()
        while iterator.hasNext():
            record = iterator.next()
            value = base64.b64encode(bytes(record.value())).decode()
            self.records.append((record.partition(), record.offset(), value))
            self.left -= 1

    def close(self) -> None:
        """End the consumer and its fetch session."""
        self._consumer.close()


def read(readers: list[Reader], patience_s: float) -> None:
    """Poll in turn those that lack records, until none does."""
    deadline = time.monotonic() + patience_s
    while any(reader.left > 0 for reader in readers) and time.monotonic() < deadline:
        for number, reader in enumerate(readers):
            if reader.left > 0 and all(len(other.records) >= _AHEAD for other in readers[:number]):
                reader.poll()


def main() -> None:
    """Do the job on stdin."""
    job = json.loads(sys.stdin.readline())
    port = launch_gateway(
        classpath=job["classpath"],
        jarpath=job["jar"],
        java_path=job["java"],
        javaopts=[
            *("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *job["options"],
            *job["log_options"],
        ],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    readers = [Reader(gateway.jvm, job, number) for number in range(len(job["shares"]))]
    read(readers, job["patience_s"])
    for reader in readers:
        reader.close()
    gateway.shutdown()
    json.dump([record for reader in readers for record in reader.records], sys.stdout)


if __name__ == "__main__":
    main()
