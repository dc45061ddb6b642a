"""Two sides of a comparison: a broker under its own quotas, and Weir in front of a broker without quotas.

`produced` and `fetched` run clients on both sides at once; `judge` prints and compares the figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from confluent_kafka import Consumer, TopicPartition

from bench.frames import record_batch
from tests.attacks.escapes import Client, Manner, attempt
from tests.clients import create_topic
from tests.integration.weir import Weir
from tests.kafka import Cluster
from tests.raw import ask, fill
from tests.wire.connection import Address
from tests.wire.frames import body_of, request
from weir.calibration import bodies
from weir.protocol.framing import LENGTH_BYTES
from weir.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse, FetchResponse

RATE: Final = 100_000
"""bytes/s"""
SECONDS: Final = 25.0
ALLOWED: Final = RATE * (SECONDS + 10)
"""Bytes that the quota may let through in that time: 25 s, of which the last 10 may have been spent ahead."""
MORE: Final = 1.1
PRODUCE_V, FETCH_V = 9, 12
VALUE_BYTES: Final = 5_000
SIDES: Final = ("broker", "weir")
UNLIMITED: Final = 1e12
NAMES: Final = 20
"""Client-ids that take turns."""

Entity: TypeAlias = "Sequence[tuple[str, str | None]]"
"""Types and names; None for the default."""


class Found(NamedTuple):
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


def produced(
    cluster: Cluster, at: dict[str, Address], topic: str, group: Sequence[Produce], names: int = 0
) -> Iterator[Found]:
    """Run these cases at once; what got through is what the partitions hold. With `names`, client-ids take
    turns.
    """
    topics = {(side, case.name): topic_of(topic, side, case.name) for side in SIDES for case in group}
    for each in topics.values():
        create_topic(cluster.bootstrap, each)
    frames = {
        (side, case.name): [
            produce_frame(
                f"{side}-{number}" if names else f"{side}-{case.name}",
                topics[side, case.name],
                case.acks,
            )
            for number in range(names or 1)
        ]
        for side in SIDES
        for case in group
    }
    record_bytes = len(produce_frame("", topic, 1)) - LENGTH_BYTES
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
            through[key] = records * record_bytes

    attempt(clients, SECONDS, look)
    with_offsets.close()
    for case in group:
        broker, weir = (through[side, case.name] / 1e6 for side in SIDES)
        yield Found(f"produce: {case.name}", "MB", broker, weir, ALLOWED / 1e6)


def fetched(
    cluster: Cluster, at: dict[str, Address], topic: str, group: Sequence[tuple[str, Manner]]
) -> Iterator[Found]:
    """Run these cases at once, each with a topic of its own; what got through is the length of responses with
    records.
    """
    for name, _ in group:
        create_topic(cluster.bootstrap, topic_of(topic, "read", name))
        fill(cluster.bootstrap, topic_of(topic, "read", name))
    clients = {
        (side, name): Client(
            name,
            at[side],
            itertools.repeat(fetch_frame(f"{side}-fetch {name}", topic_of(topic, "read", name))),
            manner,
            records_in,
        )
        for side in SIDES
        for name, manner in group
    }
    attempt(list(clients.values()), SECONDS)
    for name, _ in group:
        broker, weir = (clients[side, name].total(SECONDS) / 1e6 for side in SIDES)
        yield Found(f"fetch: {name}", "MB", broker, weir, ALLOWED / 1e6)


def topic_of(topic: str, side: str, case: str) -> str:
    """The topic of a case, on a side or for reading."""
    return f"{topic}-{side}-{crc32(case.encode())}"


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
    return f'[[quota]]\nclient_id = "weir-{name}"\nproducer_byte_rate = {RATE}\nconsumer_byte_rate = {RATE}\n'


def topic_rate(topic: str) -> str:
    return f'[[quota]]\ntopic = "{topic}"\nproducer_byte_rate = {RATE}\nconsumer_byte_rate = {RATE}\n'


def addresses(cluster: Cluster, weir: Weir) -> dict[str, Address]:
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
        broker, AlterClientQuotasRequest(entries=altered, validate_only=False), AlterClientQuotasResponse, 1
    )
    assert {each.error_code for each in answer.entries} == {0}


def limit_user(broker: Address, rate: float, key: str = "") -> None:
    """Set a quota of the user in the broker. The client-ids in turn that come through Weir are free of it."""
    user: Entity = [("user", "ANONYMOUS")]
    free: list[Entity] = [[*user, ("client-id", f"weir-{number}")] for number in range(NAMES)]
    limit(broker, (user, rate), *((each, UNLIMITED) for each in free), key=key)


def produce_frame(client_id: str, topic: str, acks: int) -> bytes:
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
