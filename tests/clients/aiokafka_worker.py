"""Jobs for aiokafka, in a process of their own, a line of JSON each; so are the results.

What a job and a result hold is in `worker_client.py`; message values travel in base64.
"""

import asyncio
import base64
import json
import sys
import time
from typing import Any

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
    __version__,
)
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import CommitFailedError, for_code

_MAX_BYTES = 2 << 20
_NO_THROTTLES = {"throttle_max_ms": 0.0, "throttle_ms": []}


async def produce(job: dict[str, Any]) -> dict[str, Any]:
    producer = AIOKafkaProducer(
        bootstrap_servers=job["bootstrap"],
        client_id=job["client_id"],
        acks=job["acks"],
        **({"max_request_size": _MAX_BYTES} | job["config"]),
    )
    transactional = "transactional_id" in job["config"]
    await producer.start()
    try:
        if transactional:
            await producer.begin_transaction()
        began = time.monotonic()
        values = [base64.b64decode(message) for message in job["messages"]]
        answers = [await producer.send(job["topic"], value, partition=job["partition"]) for value in values]
        async with asyncio.timeout(job["timeout_s"]):
            await asyncio.gather(*answers)
        seconds = time.monotonic() - began
        if transactional:
            await producer.commit_transaction()
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


async def administer(job: dict[str, Any]) -> dict[str, Any]:
    """Make the calls of an admin client; see `admin.py`."""
    admin = AIOKafkaAdminClient(bootstrap_servers=job["bootstrap"], client_id=job["client_id"])
    await admin.start()
    try:
        return {"outcomes": [await _outcome(admin, step["do"], step["topics"]) for step in job["steps"]]}
    finally:
        await admin.close()


async def _outcome(admin: AIOKafkaAdminClient, do: str, topics: dict[str, int]) -> dict[str, Any]:
    began, codes, found = time.monotonic(), dict[str, int](), []
    if do == "create":
        answer = await admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()])
        codes = {error[0]: error[1] for error in answer.topic_errors}
    elif do == "grow":  # raises errors
        await admin.create_partitions({name: NewPartitions(count) for name, count in topics.items()})
    elif do == "delete":
        codes = dict((await admin.delete_topics(list(topics))).topic_error_codes)
    else:
        found = await admin.describe_topics(list(topics))
        codes = {topic["topic"]: topic["error_code"] for topic in found}
    return {
        "errors": {name: for_code(code).__name__ if code else "" for name, code in codes.items()},
        "throttle_ms": {},
        "partitions": {topic["topic"]: len(topic["partitions"]) for topic in found},
        "seconds": time.monotonic() - began,
    }


async def member(job: dict[str, Any]) -> dict[str, Any]:
    """Be a member of a group until a line comes on stdin; see `worker_member.py`."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        client_id=job["client_id"],
        group_id=job["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **job["config"],
    )
    handling = asyncio.Lock()
    consumer.subscribe([job["topic"]], listener=_Assignment(handling))
    leave = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await consumer.start()
    try:
        while not leave.done():
            await _handle(consumer, handling)
    finally:
        await consumer.stop()
    return {}


async def _handle(consumer: AIOKafkaConsumer, handling: asyncio.Lock) -> None:
    """What came is committed before a rebalance goes on; nothing is awaited between getting and locking.

    To get records with the lock held would be a deadlock: in a rebalance the library waits for its end.
    """
    batches = await consumer.getmany(timeout_ms=100)
    async with handling:
        records = [record for batch in batches.values() for record in batch]
        if not records:
            return
        try:
            await consumer.commit({at: batch[-1].offset + 1 for at, batch in batches.items() if batch})
        except CommitFailedError:
            return  # the group has changed: whoever has the partitions now reads them again
        _say({"records": [(r.partition, base64.b64encode(r.value).decode()) for r in records]})


class _Assignment(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Tells how many partitions the member has; they are not taken away while it handles records."""

    def __init__(self, handling: asyncio.Lock) -> None:
        self._handling = handling

    async def on_partitions_revoked(self, _revoked: object) -> None:
        async with self._handling:
            _say({"partitions": 0})

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        _say({"partitions": len(assigned)})


class _Provider(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


async def _do(job: dict[str, Any]) -> dict[str, Any]:
    token = job.setdefault("config", {}).pop("sasl_oauth_token", None)
    if token is not None:
        job["config"]["sasl_oauth_token_provider"] = _Provider(token)
    jobs = {"produce": produce, "consume": consume, "member": member, "administer": administer}
    return await jobs[job["do"]](job)


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


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
    while line := sys.stdin.readline():
        _say(asyncio.run(_do(json.loads(line))) | {"version": __version__})


if __name__ == "__main__":
    main()
