"""Exchanges of records. What a job holds is in `records.py`."""

from __future__ import annotations

import base64
import time
from typing import Any

from tests.java.process import consumer, do_job, poll_time, polled, producer, record

_PATIENCE_S = 30


def exchange(java: Any, job: dict[str, Any], wait: Any) -> list[str]:
    """Send the messages and read them again; base64, as they came."""
    produce(java, job)
    return consume(java, job, wait)


def produce(java: Any, job: dict[str, Any]) -> None:
    client = producer(java, job["config"] | {"acks": "all"}, "ByteArray")
    try:
        messages = map(base64.b64decode, job["messages"])
        for future in [client.send(record(java, job["topic"], message)) for message in messages]:
            future.get()
    finally:
        client.close()


def consume(java: Any, job: dict[str, Any], wait: Any) -> list[str]:
    """Read as many as were sent, from the partition's start."""
    client = consumer(java, job["config"], "ByteArray", job["topic"])
    read: list[str] = []
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while len(read) < len(job["messages"]) and time.monotonic() < deadline:
            read += [base64.b64encode(bytes(one.value())).decode() for one in polled(client.poll(wait))]
    finally:
        client.close()
    return read


def work(java: Any, job: dict[str, Any]) -> list[list[str]]:
    return [exchange(java, one, poll_time(java, job)) for one in job["exchanges"]]


if __name__ == "__main__":
    do_job(work)
