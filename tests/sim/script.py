"""The script of a run: quotas, and a flat list of small steps, all of it drawn from a seed before the run.

A connection takes its steps in their order, each at its time, or later: a client that waits for responses, or
obeys throttle times, comes to its next request when it may. Leaving out steps leaves the others as they are.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from random import Random
from typing import Final, TypeAlias

from tests.sim.frames import KINDS, Kind

START_MS: Final = 1_000_000
HOT: Final = "hot"
"""The topic that may have a rate."""
TOPICS: Final = (HOT, "cold")
NODES: Final = 2
"""Number of brokers; a connection leads to the broker of its number."""


def wire_name(topic: str, made: int) -> str:
    """Return the name from which tests make the id (`id_of`) of a topic that was made again so many times."""
    return f"{topic}-{made}" if made else topic


@dataclass(frozen=True, slots=True)
class Open:
    client_id: str
    waits: bool = True
    """True if the client waits for its responses before it asks again."""
    obeys: bool = False
    """True if the client waits out the throttle times that it is told."""
    cuts: bool = False
    """True if the relay's reads and writes are cut at random."""
    capacity: int = 1 << 20
    """Number of bytes that each kernel buffer holds."""
    pieces: int = 1
    """Number of pieces in which a request is sent."""
    pause_ms: int = 0
    """Time between two of them."""
    read_bytes: int = 0
    """Number of bytes that the client reads at a time; 0: all there is, at once."""
    read_ms: int = 0
    """Time between two reads."""
    answer_ms: int = 1
    """Time that the broker takes to answer."""
    answer_pieces: int = 1
    """Number of pieces in which a response is sent, `answer_ms` between two."""
    hangs: bool = False
    """True if the broker answers nothing."""


@dataclass(frozen=True, slots=True)
class Ask:
    kind: Kind
    size: int = 0
    """Number of bytes of the records, in the request or in the response to it."""
    acks: int = 1
    topic: str = "cold"
    broker_throttle_ms: int = 0
    """Throttle time that the broker tells by itself."""
    stale: int = 0
    """Number of times that the topic was made again since the client learned its id."""


@dataclass(frozen=True, slots=True)
class End:
    """The connection is ended by the client ("half", "close", "reset"), the broker ("close", "reset") or Weir
    ("drain", "age", "close").
    """

    by: str
    how: str
    part_bytes: int = 0
    """Number of bytes of one more request that the client sends before."""


@dataclass(frozen=True, slots=True)
class SetQuota:
    """A client-id's quotas become these, in bytes/s."""

    client_id: str
    produce: float
    fetch: float


@dataclass(frozen=True, slots=True)
class SetTopic:
    """A topic becomes this one: it is deleted and made again, an ACL hides it, or its leader moves."""

    topic: str
    made: int = 0
    """Number of times that it was made again; its id is another one each time."""
    hidden: bool = False
    """True if clients may not describe it."""
    leader: int | None = None
    """Node id of the broker that leads it; None if each broker does."""


Action: TypeAlias = Open | Ask | End | SetQuota | SetTopic


@dataclass(frozen=True, slots=True)
class Step:
    """An action, the connection that it concerns, and its time (ms) since the beginning."""

    at_ms: int
    connection: int
    action: Action


@dataclass(frozen=True, slots=True)
class Script:
    seed: int
    quotas: tuple[SetQuota, ...]
    """From the beginning. Clients without an entry are not limited."""
    steps: tuple[Step, ...]
    topic_rate: float = 0
    """Of `HOT`, in bytes/s, for producing and fetching each; 0: it has none."""
    request_percentage: float = 0
    """Each limited client's quota on request time; 0: none has one."""

    def __str__(self) -> str:
        return _python(self)


def _python(thing: object) -> str:
    """Return the expression for a script, or for a part of one."""
    if isinstance(thing, Script | Step | Open | Ask | End | SetQuota | SetTopic):
        parts = []
        for field in fields(thing):
            value = getattr(thing, field.name)
            if value != field.default:
                parts.append(("" if field.default is MISSING else f"{field.name}=") + _python(value))
        return f"{type(thing).__name__}({', '.join(parts)})"
    if isinstance(thing, Kind):
        return f"Kind({thing.api!r}, {thing.version})"
    if isinstance(thing, tuple):
        runs = ((_python(item), len(list(run))) for item, run in groupby(thing))
        lines = (item if count == 1 else f"*({item},) * {count}" for item, count in runs)
        return "(" + "".join(f"\n    {line}," for line in lines) + ")"
    return repr(thing)


def generate(seed: int) -> Script:
    rng = Random(seed)
    topic_rate = rng.choice((200.0, 2000.0)) if rng.random() < 0.3 else 0.0
    clients = ("a",) if rng.random() < 0.4 else ("a", "b", "free")
    quotas = tuple(_quota(rng, client) for client in clients if client != "free")
    steps = []
    for number in range(rng.choice((1, 2, 2, 3, 3, 4, 6))):
        steps += _connection(rng, number, rng.choice(clients), large=not topic_rate)
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        steps.append(Step(rng.randrange(30_000), -1, _quota(rng, rng.choice(quotas).client_id)))
    if topic_rate:
        steps += _topics(rng)
    return Script(
        seed,
        quotas,
        tuple(sorted(steps, key=lambda step: step.at_ms)),
        topic_rate,
        rng.choice((0.01, 0.1, 1.0)) if rng.random() < 0.15 else 0.0,
    )


def _quota(rng: Random, client_id: str) -> SetQuota:
    rates = (20.0, 200.0, 2000.0, 20_000.0, 1e9)
    return SetQuota(client_id, rng.choice(rates), rng.choice(rates))


def _topics(rng: Random) -> list[Step]:
    """What becomes of the topics, perhaps from the beginning."""
    made, steps = dict.fromkeys(TOPICS, 0), []
    for at_ms in sorted(
        rng.choice((0, 1, 1000, rng.randrange(20_000))) for _ in range(rng.choice((0, 1, 2, 5)))
    ):
        topic = rng.choice((HOT, HOT, "cold"))
        made[topic] += rng.random() < 0.5
        leader = rng.choice((None, None, *range(NODES)))
        steps.append(Step(at_ms, -1, SetTopic(topic, made[topic], rng.random() < 0.3, leader)))
    return steps


def _connection(rng: Random, number: int, client_id: str, *, large: bool) -> list[Step]:
    at_ms = rng.choice((0, 0, 10, 1000, rng.randrange(20_000)))
    slow_reader, slow_sender = rng.random() < 0.15, rng.random() < 0.15
    opened = Open(
        client_id,
        waits=rng.random() < 0.6,
        obeys=rng.random() < 0.3,
        cuts=rng.random() < 0.4,
        capacity=rng.choice((4096, 65_536, 1 << 20)),
        pieces=rng.choice((2, 3, 10)) if slow_sender else 1,
        pause_ms=rng.choice((0, 1, 300)) if slow_sender else 0,
        read_bytes=rng.choice((50, 1000)) if slow_reader else 0,
        read_ms=rng.choice((1, 100)) if slow_reader else 0,
        answer_ms=rng.choice((0, 1, 1, 5, 100, 2000)),
        answer_pieces=rng.choice((1, 1, 1, 2, 5)),
        hangs=rng.random() < 0.03,
    )
    steps = [Step(at_ms, number, opened)]
    sizes = [0, 0, 50, 500, 5000] + [50_000] * (not slow_reader) + [300_000] * (large and not slow_reader)
    with_ids = [kind for kind in KINDS if kind.has_ids]
    kinds = rng.sample(KINDS if large else (*KINDS, *with_ids * 2), rng.choice((1, 2, 3, 5)))
    if rng.random() < 0.03:
        steps += [Step(at_ms, number, Ask(Kind("heartbeat", 4)))] * 40
    for _ in range(rng.choice((1, 2, 3, 5, 8))):
        at_ms += rng.choice((0, 0, 0, 1, 20, 1000, 10_000))
        steps.append(Step(at_ms, number, _ask(rng, rng.choice(kinds), rng.choice(sizes))))
    at_ms += rng.choice((0, 0, 1, 1000, 30_000))
    by = rng.choice(("", "", "client", "client", "client", "client", "broker", "weir"))
    if by == "client":
        how, part_bytes = rng.choice(("half", "close", "close", "reset")), rng.choice((0, 0, 1, 20, 60))
        steps.append(Step(at_ms, number, End(by, how, part_bytes)))
    elif by:
        how = rng.choice(("close", "reset")) if by == "broker" else rng.choice(("drain", "age", "close"))
        steps.append(Step(rng.randrange(at_ms + 1), number, End(by, how)))
    return steps


def _ask(rng: Random, kind: Kind, size: int) -> Ask:
    return Ask(
        kind,
        size,
        acks=rng.choice((1, 1, -1, 0, 0)) if kind.api == "produce" else 1,
        topic=rng.choice((HOT, "cold")),
        broker_throttle_ms=rng.choice((0,) * 9 + (500,)),
        stale=rng.choice((0, 0, 0, 1)),
    )
