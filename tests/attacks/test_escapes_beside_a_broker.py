"""Ways around a quota, tried at a broker's own quota and at Weir's at the same time: see
docs/background/fidelity.md.

What gets through Weir must be at most a tenth more than what gets through the broker, or than the quota
allows in that time if the broker lets less through.
"""

from __future__ import annotations

import itertools
from threading import Timer
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.frames import record_batch
from calibration import bodies
from protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    CreateTopicsRequest,
    FetchResponse,
    MetadataRequest,
)
from tests.attacks.escapes import Client, Manner, attempt
from tests.clients import create_topic
from tests.integration.mutable import partitions_at
from tests.raw import ask, fill
from tests.wire.connection import Connection
from tests.wire.frames import body_of, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.integration.conftest import StartWeir
    from tests.integration.weir import Weir
    from tests.kafka import Cluster
    from tests.kafka.fixtures import StartCluster
    from tests.wire.connection import Address

pytestmark = [pytest.mark.broker, pytest.mark.measured]

RATE: Final = 100_000
"""bytes/s"""
SECONDS: Final = 25.0
ALLOWED: Final = RATE * (SECONDS + 10)
"""Bytes that the quota may let through in that time: 25 s, of which the last 10 may have been spent ahead."""
MORE: Final = 1.1
POLLS_S: Final = 3.0
"""Time for a hundred connections to begin their polls."""
PRODUCE_V, FETCH_V = 9, 12
VALUE_BYTES: Final = 5_000
SIDES: Final = ("broker", "weir")
UNLIMITED: Final = 1e12
NAMES: Final = 20
"""Client-ids that take turns."""
MUTATIONS: Final = 1.0
"""partitions/s"""
CONNECTIONS: Final = 20
"""Connections per second of an address."""
ELSEWHERE: Final = "127.0.0.2"
"""Address of the client whose connections are limited."""


Entity: TypeAlias = "Sequence[tuple[str, str | None]]"
"""Types and names; None for the default."""


class Found(NamedTuple):
    """What a case came to."""

    case: str
    unit: str
    broker: float
    weir: float
    allowed: float
    """What the quota allows in the time."""

    @property
    def escapes(self) -> bool:
        """True if more gets through Weir than through the broker, and than the quota allows."""
        return self.weir > MORE * max(self.broker, self.allowed)


class Produce(NamedTuple):
    """Requests of about 5 kB."""

    name: str
    manner: Manner
    acks: int = 1


PRODUCES: Final = (
    (
        Produce("1 connection, pipelined", Manner()),
        Produce("1 connection, pipelined, acks=0", Manner(answered=False), 0),
        Produce("a connection per request, 4 at a time", Manner(4, reconnects=True, pause_s=0.01)),
        Produce(
            "a connection per request, 4 at a time, acks=0",
            Manner(4, reconnects=True, answered=False, pause_s=0.01),
            0,
        ),
    ),
    (
        Produce("100 connections, pipelined", Manner(100)),
        Produce("100 connections, pipelined, acks=0", Manner(100, answered=False), 0),
    ),
    (Produce("1,000 connections, pipelined", Manner(1000)),),
)
FETCHES: Final = (
    (
        ("1 connection, 5 under way", Manner(depth=5)),
        ("a connection per request, 4 at a time", Manner(4, reconnects=True, pause_s=0.01)),
    ),
    (("100 connections, 2 under way", Manner(100, depth=2)),),
    (("1,000 connections, one under way", Manner(1000, depth=1)),),
)


def test_ways_around_byte_rates_get_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    names = [each.name for group in PRODUCES for each in group]
    names += [f"fetch {name}" for group in FETCHES for name, _ in group]
    at = addresses(cluster, start_weir(cluster.bootstrap, "".join(map(weir_quota, names))))
    limit(at["broker"], *(([("client-id", f"broker-{name}")], RATE) for name in names))
    create_topic(cluster.bootstrap, f"{topic}-read")
    fill(cluster.bootstrap, f"{topic}-read")
    found = [each for group in PRODUCES for each in produced(cluster, at, topic, group)]
    found += [each for group in FETCHES for each in fetched(at, f"{topic}-read", group)]
    judge(found)


def test_a_hundred_long_polls_get_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """All of them wait at the end of an empty partition; then a record of a second's quota arrives."""
    cluster = fresh_cluster("3.9.1", optimized=True)
    at = addresses(cluster, start_weir(cluster.bootstrap, weir_quota("polls")))
    limit(at["broker"], ([("client-id", "broker-polls")], RATE))
    create_topic(cluster.bootstrap, topic)
    clients = [
        Client(
            side,
            at[side],
            itertools.repeat(poll_frame(f"{side}-polls", topic)),
            Manner(100, depth=1),
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
    judge([Found("fetch: 100 long polls", "MB", broker, weir, ALLOWED / 1e6)])


def test_a_client_id_per_request_gets_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """At the broker the names that come through Weir have quotas of their own, which are unlimited."""
    cluster = fresh_cluster("3.9.1", optimized=True)
    broker = ("127.0.0.1", cluster.ports[0])
    found: list[Found] = []
    quotas: tuple[tuple[str, Entity, str, float], ...] = (
        ("of a user", [("user", "ANONYMOUS")], 'user = "ANONYMOUS"', RATE),
        ("of the default client-id", [("client-id", None)], 'client_id = "<default>"', RATE / NAMES),
    )
    for case, entity, toml, rate in quotas:
        weir = start_weir(cluster.bootstrap, f"[[quota]]\n{toml}\nproducer_byte_rate = {rate}\n")
        outer = entity if entity[0][0] == "user" else []
        free: list[Entity] = [[*outer, ("client-id", f"weir-{number}")] for number in range(NAMES)]
        limit(broker, (entity, rate), *((each, UNLIMITED) for each in free))
        at = addresses(cluster, weir)
        for manner in (Manner(), Manner(100)):
            name = f"a client-id per request, quota {case}, {manner.connections} connections"
            found += produced(cluster, at, topic, [Produce(name, manner)], names=NAMES)
        limit(broker, (entity, None), *((each, None) for each in free))
    judge(found)


def test_ways_around_mutation_quotas_create_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    cases = {
        "CreateTopics": (Manner(10, depth=1), create_frames),
        "CreateTopics, a connection per request": (
            Manner(4, reconnects=True, pause_s=0.05),
            create_frames,
        ),
    }
    judge(created(cluster, start_weir, topic, cases))


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            "permissive",
            marks=pytest.mark.xfail(strict=True, reason="charged when the topic is there: a burst is free"),
        ),
        "strict",
    ],
)
def test_automatic_creation_creates_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str, mode: str
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    cases = {f"Metadata of missing topics, {mode}": (Manner(10, depth=1), metadata_frames)}
    judge(created(cluster, start_weir, topic, cases, "--auto-creation", mode))


def created(
    cluster: Cluster,
    start_weir: StartWeir,
    topic: str,
    cases: Mapping[str, tuple[Manner, Callable[[str, str], Iterator[bytes]]]],
    *options: str,
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
    there = partitions_at(at["broker"])

    def total(side: str, number: int) -> int:
        return sum(count for name, count in there.items() if name.startswith(f"{topic}-{side}-{number}-"))

    allowed = MUTATIONS * (SECONDS + 11)
    return [
        Found(name, "partitions", total("broker", number), total("weir", number), allowed)
        for number, name in enumerate(cases)
    ]


def test_a_connection_rate_lets_no_more_through_weir_than_through_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    quota = f'[[quota]]\nip = "{ELSEWHERE}"\nconnection_creation_rate = {CONNECTIONS}\n'
    at = addresses(cluster, start_weir(cluster.bootstrap, quota))
    limit(at["broker"], ([("ip", ELSEWHERE)], CONNECTIONS), key="connection_creation_rate")
    frame = request(MetadataRequest(topics=[]), PRODUCE_V)
    manner = Manner(50, reconnects=True, source=ELSEWHERE, pause_s=0.01)
    clients = {side: Client(side, at[side], itertools.repeat(frame), manner) for side in SIDES}
    attempt(list(clients.values()), SECONDS)
    through = {side: float(client.total(SECONDS)) for side, client in clients.items()}
    judge(
        [
            Found(
                "50 at a time",
                "connections",
                through["broker"],
                through["weir"],
                CONNECTIONS * (SECONDS + 10),
            )
        ]
    )


def produced(
    cluster: Cluster, at: dict[str, Address], topic: str, group: Sequence[Produce], names: int = 0
) -> Iterator[Found]:
    """Run these cases at once; what got through is what the partitions hold. With `names`, client-ids take
    turns.
    """
    topics = {(side, case.name): f"{topic}-{side}-{abs(hash(case.name))}" for side in SIDES for case in group}
    for each in topics.values():
        create_topic(cluster.bootstrap, each)
    frames = {
        key: [
            produce_frame(f"{key[0]}-{number}" if names else "-".join(key), name, acks_of(group, key[1]))
            for number in range(names or 1)
        ]
        for key, name in topics.items()
    }
    clients = [
        Client(case.name, at[side], itertools.cycle(frames[side, case.name]), case.manner)
        for side in SIDES
        for case in group
    ]
    through: dict[tuple[str, str], int] = {}
    with_offsets = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})

    def look() -> None:
        for key, name in topics.items():
            _, records = with_offsets.get_watermark_offsets(TopicPartition(name, 0), timeout=30)
            through[key] = records * (len(frames[key][0]) - 4)

    attempt(clients, SECONDS, look)
    with_offsets.close()
    for case in group:
        broker, weir = (through[side, case.name] / 1e6 for side in SIDES)
        yield Found(f"produce: {case.name}", "MB", broker, weir, ALLOWED / 1e6)


def fetched(at: dict[str, Address], topic: str, group: Sequence[tuple[str, Manner]]) -> Iterator[Found]:
    """Run these cases at once; what got through is the length of responses with records."""
    clients = {
        (side, name): Client(
            name, at[side], itertools.repeat(fetch_frame(f"{side}-fetch {name}", topic)), manner, records_in
        )
        for side in SIDES
        for name, manner in group
    }
    attempt(list(clients.values()), SECONDS)
    for name, _ in group:
        broker, weir = (clients[side, name].total(SECONDS) / 1e6 for side in SIDES)
        yield Found(f"fetch: {name}", "MB", broker, weir, ALLOWED / 1e6)


def judge(found: Sequence[Found]) -> None:
    """Print the table; nothing may escape."""
    print("| way | unit | broker | Weir | Weir ÷ broker | quota allows |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for each in found:
        ratio = f"{each.weir / each.broker:.2f}" if each.broker else "-"
        figures = f"{each.broker:.2f} | {each.weir:.2f} | {ratio} | {each.allowed:.2f}"
        print(f"| {each.case} | {each.unit} | {figures} |")
    assert [each for each in found if each.escapes] == []


def weir_quota(name: str) -> str:
    """An entry of Weir's quota file."""
    return f'[[quota]]\nclient_id = "weir-{name}"\nproducer_byte_rate = {RATE}\nconsumer_byte_rate = {RATE}\n'


def addresses(cluster: Cluster, weir: Weir) -> dict[str, Address]:
    """Where either side limits."""
    return {"broker": ("127.0.0.1", cluster.ports[0]), "weir": ("127.0.0.1", weir.port + 1)}


def limit(broker: Address, *entries: tuple[Entity, float | None], key: str = "") -> None:
    """Set quotas in the broker, or remove those without a rate; by default both byte rates."""
    data, op = AlterClientQuotasRequest.EntityData, AlterClientQuotasRequest.OpData
    keys = [key] if key else ["producer_byte_rate", "consumer_byte_rate"]
    altered = [
        AlterClientQuotasRequest.EntryData(
            entity=[data(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[op(key=each, value=rate or 0.0, remove=rate is None) for each in keys],
        )
        for entity, rate in entries
    ]
    answer = ask(
        broker,
        AlterClientQuotasRequest(entries=altered, validate_only=False),
        AlterClientQuotasResponse,
        1,
    )
    assert {each.error_code for each in answer.entries} == {0}


def acks_of(group: Sequence[Produce], name: str) -> int:
    """The acks of a case."""
    return next(case.acks for case in group if case.name == name)


def produce_frame(client_id: str, topic: str, acks: int) -> bytes:
    """One record."""
    body = bodies.produce({topic: [0]}, record_batch(bytes(VALUE_BYTES)), acks)
    return request(body, PRODUCE_V, client_id=client_id.encode())


def fetch_frame(client_id: str, topic: str) -> bytes:
    """As much as 10 kB of records."""
    return request(bodies.fetch(topic, [0], 10_000, max_wait_ms=500), FETCH_V, client_id=client_id.encode())


def poll_frame(client_id: str, topic: str) -> bytes:
    """All records, as soon as there are any."""
    body = bodies.fetch(topic, [0], 10 * RATE, max_wait_ms=10_000)
    return request(body, FETCH_V, client_id=client_id.encode())


def records_in(frame: bytes) -> int:
    """The charged bytes of a response; 0 without records."""
    answer = body_of(frame, FetchResponse, FETCH_V)
    has = any(part.records for topic in answer.responses for part in topic.partitions)
    return len(frame) - 4 if has else 0


def create_frames(client_id: str, topic: str) -> Iterator[bytes]:
    """A topic of two partitions each time, each time another."""
    for number in itertools.count():
        one = CreateTopicsRequest.CreatableTopic(
            name=f"{topic}-{number}", num_partitions=2, replication_factor=1
        )
        yield request(CreateTopicsRequest(topics=[one], timeout_ms=10_000), 7, client_id=client_id.encode())


def metadata_frames(client_id: str, topic: str) -> Iterator[bytes]:
    """Five missing topics each time, each time others."""
    for number in itertools.count():
        names = [f"{topic}-{number}-{each}" for each in range(5)]
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        message = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        yield request(message, 12, client_id=client_id.encode())
