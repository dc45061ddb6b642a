"""Jobs for kafka-python, in a process of their own, a line of JSON each; so are the results.

A process of their own lets tests use releases that cannot be imported side by side. What a job and a result
hold is in `worker_client.py`; message values travel in base64.
"""

import base64
import json
import logging
import sys
import threading
import time
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition, __version__
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import CommitFailedError, KafkaError

_MAX_BYTES = 2 << 20
_START_MS = "bootstrap_timeout_ms" if int(__version__.split(".")[0]) >= 3 else "api_version_auto_timeout_ms"
_START: dict[str, Any] = {_START_MS: 60_000}
"""Time (ms) for learning the broker's versions: the two seconds of release 2 are short for a busy machine."""


def produce(job: dict[str, Any]) -> dict[str, Any]:
    producer = KafkaProducer(
        bootstrap_servers=job["bootstrap"],
        client_id=job["client_id"],
        acks=job["acks"],
        **(_START | {"max_request_size": _MAX_BYTES} | job["config"]),
    )
    transactional = "transactional_id" in job["config"]
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    began = time.monotonic()
    values = [base64.b64decode(message) for message in job["messages"]]
    futures = [producer.send(job["topic"], value, partition=job["partition"]) for value in values]
    for future in futures:
        future.get(timeout=job["timeout_s"])
    seconds = time.monotonic() - began
    if transactional:
        producer.commit_transaction()
    metrics = producer.metrics()
    producer.close()
    return {"seconds": seconds, "throttle_max_ms": _throttle_max_ms(metrics)}


def consume(job: dict[str, Any]) -> dict[str, Any]:
    """Read `count` records, from the start of the topic or from where the group is."""
    consumer = KafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        **_START,
        client_id=job["client_id"],
        group_id=job["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **({"max_partition_fetch_bytes": _MAX_BYTES} | job["config"]),
    )
    began = time.monotonic()
    if job["group"] is None:
        consumer.assign(
            [TopicPartition(job["topic"], p) for p in consumer.partitions_for_topic(job["topic"])]
        )
    else:
        consumer.subscribe([job["topic"]])
    records = _poll(consumer, job["count"], began, job["timeout_s"])
    seconds = time.monotonic() - began
    if job["group"] is not None:
        consumer.commit()
    metrics = consumer.metrics()
    consumer.close()
    return {
        "seconds": seconds,
        "throttle_max_ms": _throttle_max_ms(metrics),
        "records": [(r.partition, r.offset, base64.b64encode(r.value).decode(), at) for r, at in records],
    }


def member(job: dict[str, Any]) -> dict[str, Any]:
    """Be a member of a group until a line comes on stdin; see `worker_member.py`."""
    consumer = KafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        **_START,
        client_id=job["client_id"],
        group_id=job["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **job["config"],
    )
    consumer.subscribe([job["topic"]], listener=_Assignment())
    leave = threading.Event()
    threading.Thread(target=_await_line, args=[leave], daemon=True).start()
    while not leave.is_set():
        records = [record for batch in consumer.poll(timeout_ms=100).values() for record in batch]
        if not records:
            continue
        try:
            consumer.commit()
        except CommitFailedError:
            continue  # the group has changed: whoever has the partitions now reads them again
        _say({"records": [(r.partition, base64.b64encode(r.value).decode()) for r in records]})
    consumer.close()
    return {}


def administer(job: dict[str, Any]) -> dict[str, Any]:
    """Make the calls of an admin client; see `admin.py`. An error is told of all topics of its call."""
    admin = KafkaAdminClient(bootstrap_servers=job["bootstrap"], client_id=job["client_id"], **_START)
    outcomes = [_outcome(admin, step["do"], step["topics"]) for step in job["steps"]]
    admin.close()
    return {"outcomes": outcomes}


def _outcome(admin: Any, do: str, topics: dict[str, int]) -> dict[str, Any]:
    began, error, found = time.monotonic(), "", []
    try:
        if do == "create":
            admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()])
        elif do == "grow":
            admin.create_partitions({name: NewPartitions(count) for name, count in topics.items()})
        elif do == "delete":
            admin.delete_topics(list(topics))
        else:
            found = admin.describe_topics(list(topics))
    except KafkaError as raised:
        error = type(raised).__name__
    return {
        "errors": dict.fromkeys(topics, error),
        "throttle_ms": {},
        "partitions": {topic["name"]: len(topic["partitions"]) for topic in found},
        "seconds": time.monotonic() - began,
    }


def _await_line(leave: threading.Event) -> None:
    sys.stdin.readline()
    leave.set()


class _Assignment(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    def on_partitions_revoked(self, _revoked: object) -> None:
        _say({"partitions": 0})

    def on_partitions_assigned(self, assigned: Any) -> None:
        _say({"partitions": len(assigned)})


def _with_token_provider(config: dict[str, Any]) -> dict[str, Any]:
    """A token travels as text; the library wants an object that hands it out."""
    if "sasl_oauth_token" not in config:
        return config
    from kafka.net.sasl.oauth import AbstractTokenProvider  # where release 3 has it

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
        def token(self) -> str:
            return str(config["sasl_oauth_token"])

    rest = {key: value for key, value in config.items() if key != "sasl_oauth_token"}
    return rest | {"sasl_oauth_token_provider": Provider()}


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def _poll(consumer: Any, count: int, began: float, timeout_s: float) -> list[tuple[Any, float]]:
    records: list[tuple[Any, float]] = []
    while len(records) < count and time.monotonic() < began + timeout_s:
        for batch in consumer.poll(timeout_ms=500).values():
            at_s = time.monotonic() - began
            records += [(record, at_s) for record in batch]
    return records


def _throttle_max_ms(metrics: dict[str, dict[str, float]]) -> float:
    """Of all responses; a metric that nothing was recorded in may be minus infinity or NaN."""
    values = [group["throttle-time-max"] for group in metrics.values() if "throttle-time-max" in group]
    return max((value for value in values if 0 <= value < float("inf")), default=0.0)


class _Throttles(logging.Handler):
    """Each throttled response is logged, its milliseconds the last argument."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "throttled by broker" in str(record.msg) and isinstance(record.args, tuple):
            self.seen.append(float(str(record.args[-1])))


def main() -> None:
    throttles = _Throttles()
    logging.getLogger("kafka").addHandler(throttles)
    jobs = {"produce": produce, "consume": consume, "member": member, "administer": administer}
    while line := sys.stdin.readline():
        job = json.loads(line)
        job["config"] = _with_token_provider(job.get("config", {}))
        throttles.seen.clear()
        _say(jobs[job["do"]](job) | {"version": __version__, "throttle_ms": throttles.seen})


if __name__ == "__main__":
    main()
