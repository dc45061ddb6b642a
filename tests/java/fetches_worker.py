"""Consumers that are polled in turn. What a job holds is in `fetches.py`."""

from __future__ import annotations

import base64
import time
from typing import Any

from tests.java.process import consumer, do_job, poll_time, polled

_POLL_MS = 10
_AHEAD = 50
"""A consumer begins when those before it have read that many records each."""


class Reader:
    """A consumer with partitions of its own, at their beginning."""

    def __init__(self, java: Any, job: dict[str, Any], number: int) -> None:
        share = job["shares"][number]
        self.left = job["count"] * len(share)
        self.records: list[tuple[int, int, str]] = []
        self._wait = poll_time(java, job, _POLL_MS)
        config = job["config"] | {"client.id": f"java-{number}"}
        self._consumer = consumer(java, config, "ByteArray", job["topic"], share)

    def poll(self) -> None:
        for record in polled(self._consumer.poll(self._wait)):
            value = base64.b64encode(bytes(record.value())).decode()
            self.records.append((record.partition(), record.offset(), value))
            self.left -= 1

    def close(self) -> None:
        self._consumer.close()


def read(readers: list[Reader], patience_s: float) -> None:
    """Poll in turn those that lack records, until none does."""
    deadline = time.monotonic() + patience_s
    while any(reader.left > 0 for reader in readers) and time.monotonic() < deadline:
        for number, reader in enumerate(readers):
            if reader.left > 0 and all(len(other.records) >= _AHEAD for other in readers[:number]):
                reader.poll()


def work(java: Any, job: dict[str, Any]) -> list[tuple[int, int, str]]:
    readers = [Reader(java, job, number) for number in range(len(job["shares"]))]
    read(readers, job["patience_s"])
    for reader in readers:
        reader.close()
    return [record for reader in readers for record in reader.records]


if __name__ == "__main__":
    do_job(work)
