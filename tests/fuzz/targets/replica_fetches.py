"""A connection at a replication listener, fed any replica fetches and responses while replicas are throttled.

An input is a program of `connections`. The byte of the settings chooses the rates.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final
from uuid import UUID

from tests.fuzz.growth import wide
from tests.fuzz.target import Grow, Target
from tests.fuzz.targets.connections import (
    BUFFER_BYTES,
    FRAME_BYTES_MAX,
    LARGE_BUFFER_BYTES,
    REQUEST,
    RESPONSE,
    SMALL,
    TIME,
    run_at,
    written,
)
from tests.proxy.wire import new_connection
from tests.wire.frames import request, response
from weir.protocol.api import ApiKey, response_header_version, versions
from weir.protocol.codec import codec
from weir.protocol.messages import FetchRequest, FetchResponse
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.replication.replica_fetcher import ReplicaFetcher, ReplicaFetches
from weir.proxy.handlers.replication.replication import Replication
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

LEADER, FOLLOWER, SESSION = 0, 2, 7
RATES: Final = ("0", "1", "1000", str(2**63 - 1))
LISTED_ONE, LARGE = 4, 8
"""Bits of the settings; the first two choose the rate."""
IDS: Final = {"t": UUID(bytes=b"t" * 16), "other": UUID(bytes=b"o" * 16)}


def connection(settings: int) -> Connection:
    rate, listed = RATES[settings & 3], "0:0,1:2" if settings & LISTED_ONE else "*"
    values = {
        key: value
        for role in Role
        for key, value in (
            (ConfigKey(ResourceType.BROKER, "", role.rate_key), rate),
            (ConfigKey(ResourceType.TOPIC, "t", role.replicas_key), listed),
        )
    }
    replication = Replication(ReplicationQuotas(ReplicationThrottles(values)))
    replication.topic_names = {topic_id.bytes: name for name, topic_id in IDS.items()}
    session = new_connection(
        plans=Plans(Counters(), replication=True),
        buffer_bytes=LARGE_BUFFER_BYTES if settings & LARGE else BUFFER_BYTES,
        frame_bytes_max=FRAME_BYTES_MAX,
        node_id=LEADER,
        brokers=frozenset(),
    )
    session.state_of(ReplicaFetches).fetcher = ReplicaFetcher(replication, LEADER)
    return session


def run(program: bytes) -> None:
    if program:
        run_at(connection(program[0]), program)


def _fetch(version: int, session_id: int, epoch: int, offset: int) -> bytes:
    """Return a replica fetch of a listed and another topic, without the frame's length."""
    named = [FetchRequest.FetchPartition(partition=n, fetch_offset=offset) for n in (0, 1)]
    for asked in named:
        asked.partition_max_bytes = 10_000
    topics = [FetchRequest.FetchTopic(topic=t, topic_id=IDS[t], partitions=named) for t in IDS]
    message = FetchRequest(max_wait_ms=500, topics=topics[: 2 if epoch == 0 else 1])
    if version >= 7:
        message.session_id, message.session_epoch = session_id, epoch
        if epoch > 1:
            gone = FetchRequest.ForgottenTopic(topic="t", topic_id=IDS["t"], partitions=[1])
            message.forgotten_topics_data = [gone]
    if version < 15:
        message.replica_id = FOLLOWER
    else:
        message.replica_state = FetchRequest.ReplicaState(replica_id=FOLLOWER)
    return request(message, version, correlation_id=epoch + 1)[4:]


def _told(version: int, high_watermark: int) -> bytes:
    """Return a response to `_fetch`, from behind the correlation id."""
    found = [
        FetchResponse.PartitionData(partition_index=n, high_watermark=high_watermark, records=b"r" * 50)
        for n in (0, 1)
    ]
    topics = [FetchResponse.FetchableTopicResponse(topic=t, topic_id=IDS[t], partitions=found) for t in IDS]
    message = FetchResponse(session_id=SESSION if version >= 7 else 0, responses=topics)
    return response(message, version)[8:]


def _versions() -> Iterator[int]:
    known = versions(ApiKey.FETCH)
    assert known is not None
    return iter(known)


@cache
def seeds() -> tuple[bytes, ...]:
    """Return a full fetch, two incremental ones and their responses in each version, under all settings."""
    made = []
    for version in _versions():
        steps: list[tuple[int, int, bytes]] = []
        for epoch in range(3):
            steps += [
                (REQUEST, version % 5, _fetch(version, SESSION if epoch else 0, epoch, 10 * epoch)),
                (RESPONSE, version % 7, _told(version, 1000 + epoch)),
                (TIME, 0, b"\1"),
            ]
        made += [written(settings, *steps) for settings in (version % 4, version % 4 | LISTED_ONE | LARGE)]
    return tuple(made)


def growing() -> dict[str, Grow]:
    """Return fetches and responses with one wide array, in small pieces."""
    grown: dict[str, Grow] = {}
    for version in (3, 12, max(_versions())):
        asked = _fetch(version, 0, 0, 0)
        plain = codec(FetchRequest, version)
        head = asked[: len(asked) - len(plain.encode(_decoded(version, asked)))]
        tags = b"\0" * response_header_version(ApiKey.FETCH, version)
        for name, grow in wide(FetchRequest, version).items():
            grown[name] = _program((), (REQUEST, SMALL, head), grow)
        for name, grow in wide(FetchResponse, version).items():
            grown[name] = _program(((REQUEST, 0, asked),), (RESPONSE, SMALL, tags), grow)
    return grown


def _decoded(version: int, asked: bytes) -> FetchRequest:
    head = 8 + 2 + len("app") + (version >= 12)
    return codec(FetchRequest, version).decode(asked[head:])


def _program(before: tuple[tuple[int, int, bytes], ...], last: tuple[int, int, bytes], grow: Grow) -> Grow:
    kind, cut, head = last
    return lambda count: written(2 | LARGE, *before, (kind, cut, head + grow(count)))


REPLICA_FETCHES: Final = Target("replica-fetches", run, seeds, growing)
