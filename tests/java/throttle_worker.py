"""A producer, then a consumer, and their metrics. What a job holds and what is found is in `throttle.py`."""

from __future__ import annotations

import time
from typing import Any

from tests.java.process import consumer, do_job, poll_time, producer, record

_PATIENCE_S = 60
_SMALL_FETCH = "200"
"""In bytes: one record or two at a time, so that there are several fetches."""


def work(java: Any, job: dict[str, Any]) -> dict[str, float]:
    """Send the records, read them, and return the throttle times and the number of records."""
    produced = produce(java, job)
    read, fetched = consume(java, job)
    found: dict[str, float] = {"read": read}
    for what, metrics in (("produce", produced), ("fetch", fetched)):
        for kind in ("avg", "max"):
            found[f"{what}_{kind}"] = metrics[f"{what}-throttle-time-{kind}"]
    return found


def produce(java: Any, job: dict[str, Any]) -> dict[str, float]:
    """Send the records, wait for each answer; return the producer's metrics."""
    client = producer(java, job["config"], "String")
    try:
        for sent in range(job["count"]):
            client.send(record(java, job["topic"], f"{sent:0100}")).get()
        return throttle_metrics(client, job["old_metrics"])
    finally:
        client.close()


def consume(java: Any, job: dict[str, Any]) -> tuple[int, dict[str, float]]:
    """Read the records; return how many, and the consumer's metrics."""
    config = job["config"] | {"max.partition.fetch.bytes": _SMALL_FETCH}
    client, wait = consumer(java, config, "String", job["topic"]), poll_time(java, job)
    read = 0
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while read < job["count"] and time.monotonic() < deadline:
            read += client.poll(wait).count()
        return read, throttle_metrics(client, job["old_metrics"])
    finally:
        client.close()


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


if __name__ == "__main__":
    do_job(work)
