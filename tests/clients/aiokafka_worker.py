"""One job for aiokafka, in a process of its own: `aiokafka_worker.py < job.json > result.json`.

What a job and a result hold is in `worker_client.py`; message values travel in base64.
"""

import asyncio
import base64
import json
import sys
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, __version__

_MAX_BYTES = 2 << 20
_NO_THROTTLES = {"throttle_max_ms": 0.0, "throttle_ms": []}


async def produce(job: dict[str, Any]) -> dict[str, Any]:
    """Send every message, wait for every answer."""
    producer = AIOKafkaProducer(
        bootstrap_servers=job["bootstrap"],
        client_id=job["client_id"],
        acks=job["acks"],
        **({"max_request_size": _MAX_BYTES} | job["config"]),
    )
    await producer.start()
    try:
        began = time.monotonic()
        values = [base64.b64decode(message) for message in job["messages"]]
        answers = [await producer.send(job["topic"], value, partition=job["partition"]) for value in values]
        async with asyncio.timeout(job["timeout_s"]):
            await asyncio.gather(*answers)
        seconds = time.monotonic() - began
    finally:
        await producer.stop()
    return _NO_THROTTLES | {"seconds": seconds}


async def consume(job: dict[str, Any]) -> dict[str, Any]:
    """Read `count` records, from the start of the topic or from where the group is."""
    consumer = AIOKafkaConsumer(
        job["topic"],  # every partition of it where there is no group
        bootstrap_servers=job["bootstrap"],
        client_id=job["client_id"],
        group_id=job["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **({"max_partition_fetch_bytes": _MAX_BYTES} | job["config"]),
    )
    began = time.monotonic()
    await consumer.start()
    try:
        records = await _poll(consumer, job["count"], began, job["timeout_s"])
        seconds = time.monotonic() - began
        if job["group"] is not None:
            await consumer.commit()
    finally:
        await consumer.stop()
    rows = [(r.partition, r.offset, base64.b64encode(r.value).decode(), at) for r, at in records]
    return _NO_THROTTLES | {"seconds": seconds, "records": rows}


async def _poll(
    consumer: AIOKafkaConsumer, count: int, began: float, timeout_s: float
) -> list[tuple[Any, float]]:
    records: list[tuple[Any, float]] = []
    while len(records) < count and time.monotonic() < began + timeout_s:
        for batch in (await consumer.getmany(timeout_ms=500)).values():
            at_s = time.monotonic() - began
            records += [(record, at_s) for record in batch]
    return records


def main() -> None:
    """Do the job on stdin."""
    job = json.load(sys.stdin)
    result = asyncio.run({"produce": produce, "consume": consume}[job["do"]](job))
    json.dump(result | {"version": __version__}, sys.stdout)


if __name__ == "__main__":
    main()
