"""Java for the scripts that need it (X_worker.py). Needs py4j."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

POLL_MS = 200
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def do_job(work: Callable[[Any, Any], object]) -> None:
    """Give Java and the job on stdin to `work`, and write the outcome to stdout, both as JSON."""
    job = json.loads(sys.stdin.readline())
    gateway = started(job)
    outcome = work(gateway.jvm, job)
    gateway.shutdown()
    json.dump(outcome, sys.stdout)


def started(job: Mapping[str, Any], heap: str = "128m", *, calls_back: bool = False) -> JavaGateway:
    """Start Java as `worker.start_of_java` says; with `calls_back` it can call Python."""
    port = launch_gateway(
        classpath=job["classpath"],
        jarpath=job["jar"],
        java_path=job["java"],
        javaopts=[f"-Xmx{heap}", *_OPTIONS, *job["options"]],
        die_on_exit=True,
    )
    return JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auto_convert=True),
        callback_server_parameters=CallbackServerParameters(port=0, daemonize=True) if calls_back else None,
    )


def properties(java: Any, config: Mapping[str, str]) -> Any:
    made = java.java.util.Properties()
    for key, value in config.items():
        made.setProperty(key, value)
    return made


def producer(java: Any, config: Mapping[str, str], kind: str) -> Any:
    """Return a producer; keys and values are `kind`, a name in Kafka's serialization package."""
    serializer = f"org.apache.kafka.common.serialization.{kind}Serializer"
    config = {**config, "key.serializer": serializer, "value.serializer": serializer}
    return java.org.apache.kafka.clients.producer.KafkaProducer(properties(java, config))


def record(java: Any, topic: str, value: object) -> Any:
    made = java.org.apache.kafka.clients.producer.ProducerRecord
    return made(topic, java.java.lang.Integer(0), None, value)


def consumer(
    java: Any, config: Mapping[str, str], kind: str, topic: str, partitions: Sequence[int] = (0,)
) -> Any:
    """Return a consumer at the beginning of some partitions; `kind` as in `producer`."""
    deserializer = f"org.apache.kafka.common.serialization.{kind}Deserializer"
    config = {**config, "key.deserializer": deserializer, "value.deserializer": deserializer}
    config["enable.auto.commit"] = "false"
    made = java.org.apache.kafka.clients.consumer.KafkaConsumer(properties(java, config))
    assigned = java.java.util.ArrayList()
    for partition in partitions:
        assigned.add(java.org.apache.kafka.common.TopicPartition(topic, partition))
    made.assign(assigned)
    made.seekToBeginning(assigned)
    return made


def poll_time(java: Any, job: Mapping[str, Any], poll_ms: int = POLL_MS) -> Any:
    """Return what `poll` of this release takes: a Duration, or ms before 2.0."""
    return poll_ms if job["timed_poll"] else java.java.time.Duration.ofMillis(poll_ms)


def polled(records: Any) -> list[Any]:
    found, iterator = [], records.iterator()
    while iterator.hasNext():
        found.append(iterator.next())
    return found
