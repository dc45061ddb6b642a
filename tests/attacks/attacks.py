"""The attacks: how many connections, the bytes that each of them sends, the quotas and options of Weir."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from tests.attacks.frames import bigs, every_api, messages
from tests.attacks.packed import BATCHES
from tests.wire.frames import request, request_frame, unknown_request
from tests.wire.smallest import minimal
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    ProduceRequest,
)
from weir.protocol.values import Message, schema_of

EVERY_QUOTA: Final = """
[[quota]]
client_id = "<default>"
producer_byte_rate = 1e12
consumer_byte_rate = 1e12
request_percentage = 1e9
controller_mutation_rate = 1e9

[[quota]]
topic = "t"
producer_byte_rate = 1e12
consumer_byte_rate = 1e12
"""
"""Every charge is made, and nobody waits."""
PAGES: Final = tuple(
    b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in (b"/metrics", b"/api/entities")
)
SLOW_MUTATIONS: Final = '[[quota]]\nclient_id = "<default>"\ncontroller_mutation_rate = 1\n'


@dataclass(frozen=True)
class Attack:
    name: str
    about: str
    connections: int
    send: Callable[[int], Iterator[bytes]]
    """Returns the bytes of the n-th connection, piece by piece. At the end the connection stays open."""
    quotas: str = EVERY_QUOTA
    options: tuple[str, ...] = ()
    reads: bool = True
    """False if no response is read."""
    polite: str = "metadata"
    """Request of the polite client: `metadata`, `handshake` (a TLS connection each), or `healthz`."""

    @property
    def tls(self) -> bool:
        return self.polite == "handshake"


def again(make: Callable[[], bytes], at_once: int = 64 * 1024) -> Callable[[int], Iterator[bytes]]:
    """Send this frame, which is made when it is first needed, again and again, in pieces of about `at_once`
    bytes.
    """

    @cache
    def piece() -> bytes:
        frame = make()
        return frame * max(at_once // len(frame), 1)

    return lambda _number: itertools.repeat(piece())


def _long(message: type[Message], version: int, path: str, size: int) -> bytes:
    """Return a request whose array `path` makes it about `size` bytes long."""
    (big,) = (each for each in bigs(message, version) if each.path == path)
    return request_frame(schema_of(message).api_key, version, big.body(size))


def _names(message: Callable[[list[str]], Message], version: int, count: int) -> bytes:
    return request(message([f"n{number:05d}" for number in range(count)]), version)


def _metadata(names: list[str]) -> Message:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(topics=[topic(name=name) for name in names], allow_auto_topic_creation=True)


def _create(names: list[str]) -> Message:
    topic = CreateTopicsRequest.CreatableTopic
    topics = [topic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, validate_only=True)


def _delete(names: list[str]) -> Message:
    return DeleteTopicsRequest(topic_names=names)


def _empty_produces(number: int, names: int = 100) -> Iterator[bytes]:
    body = minimal(ProduceRequest, 9)
    frames = [
        request_frame(ApiKey.PRODUCE, 9, body, client_id=f"c{number}-{name}".encode())
        for name in range(names)
    ]
    return itertools.cycle(frames)


def _flood(sizes: tuple[int, ...], _number: int) -> Iterator[bytes]:
    """Every API in its oldest and newest version: small requests, or requests with one long array."""
    while True:
        for api_key, version in every_api(all_versions=not sizes):
            message, _ = messages(api_key)
            if not sizes:
                frame = request_frame(api_key, version, minimal(message, version))
                yield frame * max(32_000 // len(frame), 1)
            for big in bigs(message, version):
                for size in sizes:
                    yield request_frame(api_key, version, big.body(size))


ATTACKS: Final = (
    Attack(
        "api-versions-99",
        "17 bytes each, which Weir answers itself",
        64,
        again(lambda: unknown_request(ApiKey.API_VERSIONS, 99, body=b"")),
    ),
    Attack(
        "alter-client-quotas",
        "15 KB of entries of 3 bytes",
        64,
        again(lambda: _long(AlterClientQuotasRequest, 1, "entries", 15_000)),
    ),
    Attack(
        "alter-client-quotas-unread",
        "the same, and no response is read",
        40,
        again(lambda: _long(AlterClientQuotasRequest, 1, "entries", 15_000)),
        reads=False,
    ),
    Attack(
        "describe-client-quotas",
        "all quotas, again and again",
        64,
        again(lambda: request(DescribeClientQuotasRequest(components=[], strict=False), 1)),
    ),
    Attack("client-ids", "empty produce requests without acks, of 100,300 client-ids", 1003, _empty_produces),
    Attack(
        "coordinators-1500000",
        "9 MB of keys in one FindCoordinator",
        1,
        again(lambda: _long(FindCoordinatorRequest, 6, "coordinator_keys", 9_400_000)),
    ),
    Attack(
        "coordinators-10000",
        "10,000 keys in each FindCoordinator",
        4,
        again(lambda: _names(lambda names: FindCoordinatorRequest(coordinator_keys=names), 6, 10_000)),
    ),
    Attack(
        "metadata-names",
        "1 MB of names in each Metadata, under a mutation quota",
        1,
        again(lambda: _names(_metadata, 9, 100_000)),
        SLOW_MUTATIONS,
    ),
    Attack(
        "create-topics",
        "1 MB of topics in each CreateTopics, under a mutation quota",
        1,
        again(lambda: _names(_create, 5, 60_000)),
        SLOW_MUTATIONS,
    ),
    Attack(
        "delete-topics",
        "1 MB of names in each DeleteTopics, under a mutation quota",
        1,
        again(lambda: _names(_delete, 5, 100_000)),
        SLOW_MUTATIONS,
    ),
    Attack(
        "missing-topics",
        "Metadata of one missing topic, after 1,000 others, under a mutation quota",
        1,
        lambda _number: itertools.chain(
            (request(_metadata([f"m{number}"]), 9) for number in range(1000)),
            again(lambda: request(_metadata(["m0"]), 9), 4096)(0),
        ),
        SLOW_MUTATIONS,
    ),
    *(
        Attack(f"packed-{name}", f"1 MB of records: {about}", 4, again(make))
        for name, (about, make) in BATCHES.items()
    ),
    Attack(
        "tls-one-byte",
        "one byte of a handshake each",
        2000,
        lambda _number: iter((b"\x16",)),
        polite="handshake",
    ),
    Attack(
        "unfinished",
        "0.9 MB of a CreateTopics of 1 MB each",
        500,
        lambda _number: iter((_names(_create, 5, 60_000)[:900_000],)),
        SLOW_MUTATIONS,
    ),
    Attack(
        "slow-http",
        "half a request to the admin port",
        32,
        lambda _number: iter((b"GET /metr",)),
        polite="healthz",
    ),
    Attack(
        "pages",
        "GET of /metrics or /api/entities, again and again",
        40,
        lambda number: itertools.repeat(PAGES[number % len(PAGES)]),
        polite="healthz",
    ),
    Attack("flood-small-1", "small requests of every API and version", 1, partial(_flood, ())),
    Attack("flood-small-64", "the same on 64 connections", 64, partial(_flood, ())),
    Attack("flood-64k", "64 KB of every array of every API", 16, partial(_flood, (64_000,))),
    Attack(
        "flood-1m", "250 KB and 1 MB of every array of every API", 4, partial(_flood, (250_000, 1_000_000))
    ),
)
BY_NAME: Final = {attack.name: attack for attack in ATTACKS}
