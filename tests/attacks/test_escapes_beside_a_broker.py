"""Ways around a quota, tried at a broker's own quota and at Weir's at the same time: see
docs/background/fidelity.md.

What gets through Weir must be at most a tenth more than what gets through the broker, or than the quota
allows in that time if the broker lets less through.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from threading import Timer
from typing import Final, TypeAlias

import pytest

from bench.frames import record_batch
from tests.attacks.escapes import Client, Manner, attempt, rude
from tests.attacks.sides import (
    ALLOWED,
    NAMES,
    PRODUCE_V,
    RATE,
    SECONDS,
    SIDES,
    UNLIMITED,
    Entity,
    Found,
    Produce,
    addresses,
    fetched,
    judge,
    limit,
    limit_user,
    poll_frame,
    produced,
    records_in,
    topic_rate,
    weir_quota,
)
from tests.clients import create_topic
from tests.integration.conftest import StartWeir
from tests.integration.mutable import SMALL, partitions_at
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.wire.connection import Address, Connection
from tests.wire.frames import request
from weir.calibration import bodies
from weir.protocol.messages import CreateTopicsRequest, MetadataRequest

pytestmark = [pytest.mark.broker, pytest.mark.measured]

Creations: TypeAlias = "Mapping[str, tuple[Manner, Callable[[str, str], Iterator[bytes]]]]"
"""By case: the manner, and the frames for a client-id and the beginning of topics' names."""
POLLS_S: Final = 3.0
"""Time for a hundred connections to begin their polls."""
MUTATIONS: Final = 1.0
"""partitions/s"""
CONNECTIONS: Final = 20
"""Connections per second of an address."""
AT_ONCE: Final = (1, 50, 1000)
"""Connections at a time, each number from an address of its own."""


def create_frames(client_id: str, topic: str, version: int = 7) -> Iterator[bytes]:
    """A topic of two partitions each time, each time another."""
    configs = [
        CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in SMALL.items()
    ]
    for number in itertools.count():
        one = CreateTopicsRequest.CreatableTopic(
            name=f"{topic}-{number}", num_partitions=2, replication_factor=1, configs=configs
        )
        yield request(
            CreateTopicsRequest(topics=[one], timeout_ms=10_000), version, client_id=client_id.encode()
        )


def metadata_frames(client_id: str, topic: str) -> Iterator[bytes]:
    """Five missing topics each time, each time others."""
    for number in itertools.count():
        names = [f"{topic}-{number}-{each}" for each in range(5)]
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        message = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        yield request(message, 12, client_id=client_id.encode())


def create_old_frames(client_id: str, topic: str) -> Iterator[bytes]:
    """The same in a version that is not refused."""
    return create_frames(client_id, topic, version=5)


PRODUCES: Final = (
    (
        Produce("1 connection, pipelined", rude()),
        Produce("1 connection, pipelined, acks=0", rude(answered=False), 0),
        Produce("a connection per request, 4 at a time", rude(4, reconnects=True, pause_s=0.01)),
        Produce(
            "a connection per request, 4 at a time, acks=0",
            rude(4, reconnects=True, answered=False, pause_s=0.04),
            0,  # neither side slows it, so both must be offered the same
        ),
    ),
    (Produce("1,000 connections, pipelined", rude(1000)),),
)
FETCHES: Final = (
    (
        ("1 connection, 5 under way", rude(depth=5)),
        ("a connection per request, 4 at a time", rude(4, reconnects=True, pause_s=0.01)),
    ),
    (("1,000 connections, one under way", rude(1000, depth=1)),),
)


CREATIONS: Final[Mapping[str, Creations]] = {
    "a few connections": {
        "1 connection, CreateTopics, pipelined": (rude(depth=100), create_frames),
        "10 connections, CreateTopics": (rude(10, depth=1), create_frames),
        "4 connections, CreateTopics, a new one for each request": (
            rude(4, reconnects=True, pause_s=0.05),
            create_frames,
        ),
        "10 connections, CreateTopics v5": (rude(10, depth=1), create_old_frames),
        "4 connections, CreateTopics v5, a new one for each request": (
            rude(4, reconnects=True, pause_s=1.0),
            create_old_frames,
        ),
        "10 connections, Metadata of missing topics": (rude(10, depth=1), metadata_frames),
    },
    "a thousand connections": {"1,000 connections, CreateTopics": (rude(1000, depth=1), create_frames)},
}
"""Topics of two partitions. Versions before 6 are never refused, only throttled. Metadata creates topics
automatically.
"""


def test_ways_around_byte_rates_get_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    names = [each.name for group in PRODUCES for each in group]
    names += [f"fetch {name}" for group in FETCHES for name, _ in group]
    at = addresses(cluster, start_weir(cluster.bootstrap, "".join(map(weir_quota, names))))
    limit(at["broker"], *(([("client-id", f"broker-{name}")], RATE) for name in names))
    found = [each for group in PRODUCES for each in produced(cluster, at, topic, group)]
    found += [each for group in FETCHES for each in fetched(cluster, at, topic, group)]
    judge(found)


@pytest.mark.parametrize("whose", ["client-id", "topic"])
def test_a_hundred_long_polls_get_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str, whose: str
) -> None:
    """All of them wait at the end of an empty partition; then a record of a second's quota arrives."""
    cluster = fresh_cluster("3.9.1", optimized=True)
    quota = weir_quota("polls") if whose == "client-id" else topic_rate(topic)
    at = addresses(cluster, start_weir(cluster.bootstrap, quota))
    limit(at["broker"], ([("client-id", "broker-polls")], RATE))
    create_topic(cluster.bootstrap, topic)
    clients = [
        Client(
            side,
            at[side],
            itertools.repeat(poll_frame(f"{side}-polls", topic)),
            rude(100, depth=1),
            records_in,
        )
        for side in SIDES
    ]
    one = request(bodies.produce({topic: [0]}, record_batch(bytes(RATE)), 1), PRODUCE_V, client_id=b"writer")

    def write() -> None:
        with Connection(at["broker"]) as connection:
            connection.exchange(one)

    timer = Timer(POLLS_S, write)
    timer.start()
    attempt(clients, POLLS_S + SECONDS)
    timer.join()
    broker, weir = (client.total(POLLS_S + SECONDS) / 1e6 for client in clients)
    judge([Found(f"fetch: 100 long polls, quota of a {whose}", "MB", broker, weir, ALLOWED / 1e6)])


def test_a_client_id_per_request_gets_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """At the broker the names that come through Weir have quotas of their own, which are unlimited."""
    cluster = fresh_cluster("3.9.1", optimized=True)
    broker = ("127.0.0.1", cluster.ports[0])
    found: list[Found] = []
    quotas: tuple[tuple[str, Entity, str, float, int], ...] = (
        ("of a user", [("user", "ANONYMOUS")], 'user = "ANONYMOUS"', RATE, 100),
        ("of the default client-id", [("client-id", None)], 'client_id = "<default>"', RATE / NAMES, 1),
    )
    for case, entity, toml, rate, connections in quotas:
        weir = start_weir(cluster.bootstrap, f"[[quota]]\n{toml}\nproducer_byte_rate = {rate}\n")
        outer = entity if entity[0][0] == "user" else []
        free: list[Entity] = [[*outer, ("client-id", f"weir-{number}")] for number in range(NAMES)]
        limit(broker, (entity, rate), *((each, UNLIMITED) for each in free))
        at = addresses(cluster, weir)
        name = f"a client-id per request, quota {case}, {connections} connections"
        found += produced(cluster, at, topic, [Produce(name, rude(connections))], names=NAMES)
        limit(broker, (entity, None), *((each, None) for each in free))
    judge(found)


@pytest.mark.parametrize("which", CREATIONS)
def test_ways_around_mutation_quotas_create_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str, which: str
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    judge(created(cluster, start_weir, topic, CREATIONS[which]))


def test_a_client_id_per_creation_creates_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster, key = fresh_cluster("3.9.1", optimized=True), "controller_mutation_rate"
    quota = f'[[quota]]\nuser = "ANONYMOUS"\n{key} = {MUTATIONS}\n'
    at = addresses(cluster, start_weir(cluster.bootstrap, quota))
    limit_user(at["broker"], MUTATIONS, key)
    clients = [
        Client(side, at[side], in_turn(side, f"{topic}-{side}-0"), rude(100, depth=1)) for side in SIDES
    ]
    attempt(clients, SECONDS)
    judge([creations("100 connections, 20 client-ids in turn", at["broker"], topic, 0)])


def in_turn(side: str, topic: str) -> Iterator[bytes]:
    """Creations, each by the next of some client-ids."""
    each = [create_frames(f"{side}-{number}", f"{topic}-{number}") for number in range(NAMES)]
    return (next(frames) for frames in itertools.cycle(each))


def creations(case: str, broker: Address, topic: str, number: int) -> Found:
    """Partitions of the topics that the sides have created in the case of this number."""
    there = partitions_at(broker)
    broker_side, weir_side = (
        sum(count for name, count in there.items() if name.startswith(f"{topic}-{side}-{number}-"))
        for side in SIDES
    )
    return Found(case, "partitions", broker_side, weir_side, MUTATIONS * (SECONDS + 11))


def created(
    cluster: Cluster, start_weir: StartWeir, topic: str, cases: Creations, *options: str
) -> list[Found]:
    """Run these cases at once; what got through is the partitions that are there at the end."""
    key = "controller_mutation_rate"
    quotas = "".join(f'[[quota]]\nclient_id = "weir-{name}"\n{key} = {MUTATIONS}\n' for name in cases)
    at = addresses(cluster, start_weir(cluster.bootstrap, quotas, options=options))
    limit(at["broker"], *(([("client-id", f"broker-{name}")], MUTATIONS) for name in cases), key=key)
    clients = [
        Client(name, at[side], frames(f"{side}-{name}", f"{topic}-{side}-{number}"), manner)
        for side in SIDES
        for number, (name, (manner, frames)) in enumerate(cases.items())
    ]
    attempt(clients, SECONDS)
    return [creations(name, at["broker"], topic, number) for number, name in enumerate(cases)]


def test_a_connection_rate_lets_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    sources = {number: f"127.0.0.{2 + index}" for index, number in enumerate(AT_ONCE)}
    key = "connection_creation_rate"
    quotas = [f'[[quota]]\nip = "{source}"\n{key} = {CONNECTIONS}\n' for source in sources.values()]
    at = addresses(cluster, start_weir(cluster.bootstrap, "".join(quotas)))
    limit(at["broker"], *(([("ip", source)], CONNECTIONS) for source in sources.values()), key=key)
    frame = request(MetadataRequest(topics=[]), PRODUCE_V)
    clients = {
        (side, number): Client(
            side,
            at[side],
            itertools.repeat(frame),
            rude(number, reconnects=True, source=source, pause_s=0.01),
        )
        for side in SIDES
        for number, source in sources.items()
    }
    attempt(list(clients.values()), SECONDS)
    judge(
        [
            Found(
                f"{number} at a time",
                "connections",
                float(clients["broker", number].total(SECONDS)),
                float(clients["weir", number].total(SECONDS)),
                CONNECTIONS * (SECONDS + 10),
            )
            for number in AT_ONCE
        ]
    )
