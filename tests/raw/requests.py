"""Frames built once, and what their responses say. Enough to produce, fetch, find leaders and set quotas."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from bench.frames import record_batch
from tests.clients.librdkafka import Librdkafka
from tests.kafka.jars import version_tuple
from tests.wire import frames
from tests.wire.connection import Address, Connection
from weir.calibration import bodies
from weir.protocol.framing import LENGTH_BYTES
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from weir.protocol.values import Message

M = TypeVar("M", bound="Message")

TIMEOUT_S = 30.0
_METADATA_VERSION = 1
_QUOTAS_VERSION = 1


class RequestError(Exception):
    """A broker (or Weir) answered with an error code; says which."""


class BrokerVersions(NamedTuple):
    produce: int
    fetch: int


OLD = BrokerVersions(produce=2, fetch=3)
"""What 0.10.2 speaks at best: message sets instead of record batches."""
NEW = BrokerVersions(produce=9, fetch=12)
"""The oldest flexible versions, with topics by name: 2.7 and newer."""


def broker_versions_of(kafka_version: str) -> BrokerVersions:
    return NEW if version_tuple(kafka_version) >= (2, 7) else OLD


class Outcome(NamedTuple):
    charged_bytes: int
    """What a quota counts of the exchange; 0 if nothing was delivered."""
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class Request:
    """A frame to send again and again, and how to read what comes back (raises RequestError)."""

    frame: bytes
    outcome: Callable[[bytes], Outcome]


def produce(
    broker_versions: BrokerVersions, client_id: str, topic: str, value_bytes: int, partition: int = 0
) -> Request:
    """One record, acks=1. It costs the frame's length without the prefix."""
    records = (
        record_batch(bytes(value_bytes)) if broker_versions.produce >= 3 else message_set(bytes(value_bytes))
    )
    body = bodies.produce({topic: [partition]}, records)
    frame = frames.request(body, broker_versions.produce, client_id=client_id.encode())
    return Request(frame, partial(_produced, broker_versions.produce, len(frame) - LENGTH_BYTES))


def _produced(version: int, cost: int, frame: bytes) -> Outcome:
    response = frames.body_of(frame, ProduceResponse, version)
    for topic in response.responses:
        for partition in topic.partition_responses:
            _check(partition.error_code, f"producing to {topic.name}-{partition.index}")
    return Outcome(cost, response.throttle_time_ms)


def fetch(
    broker_versions: BrokerVersions, client_id: str, topic: str, at_most_bytes: int, partition: int = 0
) -> Request:
    """The first bytes of a partition, without a fetch session. It costs the response's body plus 4."""
    body = bodies.fetch(topic, [partition], at_most_bytes, max_wait_ms=500)
    frame = frames.request(body, broker_versions.fetch, client_id=client_id.encode())
    return Request(frame, partial(_fetched, broker_versions.fetch))


def _fetched(version: int, frame: bytes) -> Outcome:
    response = frames.body_of(frame, FetchResponse, version)
    _check(response.error_code, "fetching")
    delivered = 0
    for topic in response.responses:
        for partition in topic.partitions:
            _check(partition.error_code, f"fetching {topic.topic}-{partition.partition_index}")
            delivered += len(partition.records or b"")
    return Outcome(len(frame) - LENGTH_BYTES if delivered else 0, response.throttle_time_ms)


def leaders(address: Address, topic: str) -> dict[int, Address]:
    """Where each partition of a topic is led, as the one who answers tells it."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    answer = ask(address, request, MetadataResponse, _METADATA_VERSION)
    brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    for found in answer.topics:
        _check(found.error_code, f"metadata of {topic}")
    return {
        partition.partition_index: brokers[partition.leader_id]
        for found in answer.topics
        for partition in found.partitions
    }


def set_quotas(address: Address, quotas: Mapping[str, Mapping[str, float]]) -> None:
    """Give client-ids quotas in a broker (2.6 and newer): client-id to quota key to bytes/s."""
    entries = [
        AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=client_id)],
            ops=[
                AlterClientQuotasRequest.OpData(key=key, value=value, remove=False)
                for key, value in of.items()
            ],
        )
        for client_id, of in quotas.items()
    ]
    request = AlterClientQuotasRequest(entries=entries, validate_only=False)
    answer = ask(address, request, AlterClientQuotasResponse, _QUOTAS_VERSION)
    for entry in answer.entries:
        _check(entry.error_code, f"setting the quota of {entry.entity[0].entity_name}")


def fill(bootstrap: str, topic: str, partition: int = 0) -> None:
    """Put 400 KB into a partition, in batches so small that a fetch gets as much as it asks for.

    Their timestamps are of now: those of `produce` are so old that a broker may delete them at any time.
    """
    messages = [bytes(1000)] * 400
    Librdkafka().produce(bootstrap, topic, messages, partition=partition, config={"batch.num.messages": 1})


def ask(address: Address, request: Message, response: type[M], version: int) -> M:
    """Ask one thing on a connection of its own. Raises OSError, EOFError, ProtocolError."""
    with Connection(address, "asker", TIMEOUT_S) as connection:
        return connection.ask(request, response, version)


def _check(error_code: int, doing: str) -> None:
    if error_code:
        raise RequestError(f"{doing}: error code {error_code}")


def message_set(value: bytes) -> bytes:
    """One record without key in a message set of format 1, not compressed; timestamp 0."""
    rest = struct.pack(">bbqii", 1, 0, 0, -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(rest)) + rest
    return struct.pack(">qi", 0, len(message)) + message
