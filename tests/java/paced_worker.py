"""A producer that sends at a fixed rate. What a job holds and what is found is in `paced.py`."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

from tests.java.process import do_job, producer

_PATIENCE_S = 60


def work(java: Any, job: dict[str, Any]) -> list[list[Any]]:
    """Send the records; return when each was sent and acknowledged, and its error."""
    client = producer(java, job["config"], "String")
    made, integer = java.org.apache.kafka.clients.producer.ProducerRecord, java.java.lang.Integer
    waiting: list[deque[tuple[int, Any]]] = [deque() for _ in range(job["partitions"])]
    found: list[list[Any]] = []
    try:
        client.partitionsFor(job["topic"])
        began = time.monotonic()
        for number in range(job["records"]):
            if Path(job["stop"]).exists():
                break
            _collect(waiting, found)  # also if the load is behind its pace, because the producer blocks
            while time.monotonic() < began + number / job["rate"]:
                _collect(waiting, found)
                time.sleep(0.001)  # the pace of the load
            partition = number % job["partitions"]
            found.append([time.monotonic(), None, None])
            sent = client.send(made(job["topic"], integer(partition), None, str(number).zfill(job["size"])))
            waiting[partition].append((number, sent))
        deadline = time.monotonic() + _PATIENCE_S
        while any(waiting) and time.monotonic() < deadline:
            _collect(waiting, found)
            time.sleep(0.001)  # between looks; nothing is decided by it
        return found
    finally:
        client.close()


def _collect(waiting: list[deque[tuple[int, Any]]], found: list[list[Any]]) -> None:
    """Note the acknowledgements that are here. Those of a partition come in order."""
    for partition in waiting:
        while partition and partition[0][1].isDone():
            number, sent = partition.popleft()
            found[number][1] = time.monotonic()
            try:
                sent.get()
            except Exception as error:  # noqa: BLE001  # py4j's, of whatever Java has thrown
                found[number][2] = str(error).splitlines()[-1]


if __name__ == "__main__":
    do_job(work)
