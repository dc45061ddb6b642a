"""Create and fill the topics of the workloads, and make the batches that the workloads write."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from confluent_kafka import Producer

from bench.entry import receive_frame
from bench.request_time.calls import BrokerVersions, Call
from weir.calibration import batches, bodies
from weir.protocol import ErrorCode
from weir.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataResponse,
    ProduceResponse,
)
from weir.protocol.scanning.record_batches import PACKED_WEIGHT
from weir.protocol.values import Message

SMALL: Final = "small"
"""Name of the topic with one record of 100 bytes."""
BIG: Final = "big"
"""Name of the topic with 1 MB of records in batches of 16 kB."""
WRITTEN: Final = "written"
WIDE: Final = "wide"
"""Name of the topic for requests that write to many partitions."""
EMPTY: Final = "empty"
"""Name of the topic for requests that name many partitions; its partitions stay empty."""
CODEC_TOPIC: Final = "codec"
PARTITIONS: Final = {SMALL: 1, BIG: 1, WRITTEN: 16, WIDE: 100, EMPTY: 500}
SMALL_BYTES: Final = 100
RECORD_BYTES: Final = 1000
MEDIUM_RECORDS: Final = 16
LARGE_RECORDS: Final = 1000
FETCH_BYTES: Final = 500_000
CODECS: Final[Mapping[str, tuple[int, ...]]] = {"gzip": (0,), "snappy": (0,), "lz4": (0,), "zstd": (2, 1)}
"""First Kafka release that supports the codec, by codec; (0,) for all releases."""
TEXTS: Final = ("zeros", "words")
"""Kinds of records to compress: zeros, which compress to almost nothing, and words, which compress like text.
"""
GROUP, TRANSACTION = 0, 1
"""Types of coordinators, as FindCoordinator requests encode them."""
READY_S: Final = 60.0
_POLL_S: Final = 0.1
_COUNT_AT: Final = 57
_LINGER_MS: Final = 2000


class TopicsError(Exception):
    """Raised if the topics cannot be created or filled."""


@dataclass(frozen=True, slots=True)
class Batch:
    """An encoded record batch, with the codec and the size (kB) by which unpacking is charged; both empty if
    it is not compressed.
    """

    records: bytes
    weighed_kb: float = 0.0
    codec: str = ""


@dataclass(frozen=True, slots=True)
class Data:
    """The batches that workloads write, by size, kind of records and codec."""

    small: Batch
    medium: Batch
    large: Batch
    compressed: Mapping[tuple[str, str], Batch] = field(default_factory=dict)
    """Compressed batches, by codec and kind of records (`TEXTS`)."""


def prepare(address: tuple[str, int], broker_versions: BrokerVersions, version: str) -> Data:
    """Create and fill the topics; return the batches to write. Raises TopicsError, OSError."""
    from tests.kafka.jars import version_tuple

    codecs = [codec for codec, since in CODECS.items() if version_tuple(version) >= since]
    names = {**PARTITIONS, **{_codec_topic(c, t): 1 for c in codecs for t in TEXTS}}
    create(address, broker_versions, names)
    await_topics(address, broker_versions, names)
    data = Data(
        small=plain([bytes(SMALL_BYTES)]),
        medium=plain([bytes(RECORD_BYTES)] * MEDIUM_RECORDS),
        large=plain([bytes(RECORD_BYTES)] * LARGE_RECORDS),
        compressed={(c, t): _compressed(address, broker_versions, c, t) for c in codecs for t in TEXTS},
    )
    for kind in (GROUP, TRANSACTION):
        await_coordinator(address, broker_versions, kind)
    for topic, batch, count in ((SMALL, data.small, 1), (BIG, data.medium, 64)):
        for _ in range(count):
            write(address, broker_versions, topic, batch)
    return data


def create(address: tuple[str, int], broker_versions: BrokerVersions, partitions: Mapping[str, int]) -> None:
    """Create topics; `partitions` has the number of partitions by name. Raises TopicsError, OSError."""
    wanted = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in partitions.items()
    ]
    body = CreateTopicsRequest(topics=wanted, timeout_ms=30_000)
    answer = exchange(address, broker_versions.call("setup", body))
    assert isinstance(answer, CreateTopicsResponse)
    codes = {topic.error_code for topic in answer.topics} - {0}
    if codes:
        raise TopicsError(f"creating topics: {', '.join(ErrorCode(code).name for code in codes)}")


def await_topics(address: tuple[str, int], broker_versions: BrokerVersions, names: Iterable[str]) -> None:
    """Wait until each partition of these topics has a leader. Raises TopicsError, OSError."""
    call = broker_versions.call("setup", bodies.metadata(names))
    deadline_s = time.monotonic() + READY_S
    while True:
        answer = exchange(address, call)
        assert isinstance(answer, MetadataResponse)
        found = [topic.error_code for topic in answer.topics]
        found += [part.error_code for topic in answer.topics for part in topic.partitions]
        if not any(found):
            return
        if time.monotonic() > deadline_s:
            raise TopicsError("topics are not ready")
        time.sleep(_POLL_S)


def await_coordinator(address: tuple[str, int], broker_versions: BrokerVersions, kind: int) -> None:
    """Wait until the broker can coordinate groups or transactions (`kind`). Raises TopicsError, OSError."""
    call = broker_versions.call("setup", FindCoordinatorRequest(key="any", key_type=kind))
    deadline_s = time.monotonic() + READY_S
    while True:
        answer = exchange(address, call)
        assert isinstance(answer, FindCoordinatorResponse)
        if not answer.error_code:
            return
        if time.monotonic() > deadline_s:
            raise TopicsError(f"no coordinator: {ErrorCode(answer.error_code).name}")
        time.sleep(_POLL_S)


def exchange(address: tuple[str, int], call: Call) -> Message:
    """Send one request on a new connection; return the response. Raises OSError."""
    with socket.create_connection(address, READY_S) as connection:
        connection.sendall(call.frame)
        return call.response(receive_frame(connection))


def write(address: tuple[str, int], broker_versions: BrokerVersions, topic: str, batch: Batch) -> None:
    """Write a batch to partition 0 of a topic. Raises TopicsError, OSError."""
    answer = exchange(address, broker_versions.call("setup", bodies.produce({topic: [0]}, batch.records)))
    assert isinstance(answer, ProduceResponse)
    for part in chain.from_iterable(found.partition_responses for found in answer.responses):
        if part.error_code:
            raise TopicsError(f"writing to {topic}: {ErrorCode(part.error_code).name}")


def plain(values: Sequence[bytes]) -> Batch:
    """Return an uncompressed batch (format 2) with these records, all with timestamp 0."""
    return Batch(batches.batch(values, now_ms=0).data)


def _codec_topic(codec: str, text: str) -> str:
    return f"{CODEC_TOPIC}-{codec}-{text}"


def _compressed(address: tuple[str, int], broker_versions: BrokerVersions, codec: str, text: str) -> Batch:
    """Return a batch of 0.9 MB of records that librdkafka compressed: produce the records with librdkafka,
    then fetch the batch from the broker. Raises TopicsError, OSError.
    """
    topic = _codec_topic(codec, text)
    values = [_value(text, index) for index in range(LARGE_RECORDS * 9 // 10)]
    producer = Producer(
        {
            "bootstrap.servers": "{}:{}".format(*address),
            "compression.type": codec,
            "linger.ms": _LINGER_MS,
            "batch.size": 1_000_000,
            "batch.num.messages": LARGE_RECORDS,
            "message.max.bytes": 1_000_000,
            "log_level": 2,
        }
    )
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(READY_S)
    body = bodies.fetch(topic, [0], 2_000_000, max_wait_ms=1000)
    answer = exchange(address, broker_versions.call("setup", body))
    assert isinstance(answer, FetchResponse)
    records = answer.responses[0].partitions[0].records or b""
    count = int.from_bytes(records[_COUNT_AT : _COUNT_AT + 4])
    if count != len(values):
        raise TopicsError(f"{codec}: {count} of {len(values)} records are in the first batch")
    weighed_bytes = sum(len(value) + 10 for value in values) + PACKED_WEIGHT * len(records)
    return Batch(records, weighed_bytes / 1000.0, codec)


def _value(text: str, index: int) -> bytes:
    """Return a record of 1 kB: zeros or words."""
    return bytes(batches.RECORD_BYTES) if text == "zeros" else batches.words(index)
