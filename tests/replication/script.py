"""Scripts: the brokers of a run, and what happens when; drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from tests.replication.follower import FetchLimits
from tests.replication.leader import Partition
from weir.protocol.messages import FetchRequest
from weir.protocol.values import schema_of
from weir.quotas.replication.throttles import ConfigKey, ResourceType, Role

LEADER: Final = 1
VERSIONS: Final = tuple(version for version in schema_of(FetchRequest).versions if version >= 1)
Throttles: TypeAlias = tuple[tuple[ConfigKey, str], ...]


@dataclass(frozen=True)
class Produce:
    partition: Partition
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Throttle:
    values: Throttles


@dataclass(frozen=True)
class Restart:
    truncated: tuple[tuple[Partition, int], ...] = ()


@dataclass(frozen=True)
class Cut:
    follower: int


@dataclass(frozen=True)
class RestartWeir:
    """Weir restarts: all connections end, and it has forgotten everything."""


@dataclass(frozen=True)
class Remove:
    follower: int
    partition: Partition


@dataclass(frozen=True)
class Add:
    """A follower follows a partition again, from where it was."""

    follower: int
    partition: Partition


@dataclass(frozen=True)
class Evict:
    follower: int


@dataclass(frozen=True)
class LearnIds:
    """Weir learns the ids of all topics."""


Event: TypeAlias = Produce | Throttle | Restart | Cut | RestartWeir | Remove | Add | Evict | LearnIds


@dataclass(frozen=True)
class FollowerScript:
    """A follower: its versions, limits and partitions; those that are in sync at first, with whole logs."""

    node_id: int
    version: int
    limits: FetchLimits
    partitions: tuple[Partition, ...]
    in_sync: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class Script:
    seed: int
    followers: tuple[FollowerScript, ...]
    logs: tuple[Produce, ...]
    events: tuple[tuple[int, Event], ...] = ()
    throttles: Throttles = ()
    """In force from the beginning."""
    cache_slots: int = 1000
    latency_ms: int = 2
    buffer_bytes: int = 4096
    ids_known: bool = True
    """True if Weir knows the topics' ids from the beginning."""


def rate(role: Role, value: int, node_id: str = "") -> tuple[ConfigKey, str]:
    """Return the configuration of a rate (bytes/s); of all brokers without a node id."""
    return ConfigKey(ResourceType.BROKER, node_id, role.rate_key), str(value)


def replicas(role: Role, topic: str, value: str = "*") -> tuple[ConfigKey, str]:
    return ConfigKey(ResourceType.TOPIC, topic, role.replicas_key), value


def generate(seed: int) -> Script:
    return _Draw(seed).script()


class _Draw:
    def __init__(self, seed: int) -> None:
        self.rng, self.seed = Random(seed), seed
        draw = self.rng
        topics = [f"t{n}" for n in range(draw.randint(1, 2))]
        self.partitions = [(topic, index) for topic in topics for index in range(draw.randint(1, 3))]
        self.size_max = draw.choice([100, 2000, 30_000])
        self.nodes = list(range(2, 2 + draw.randint(1, 3)))

    def script(self) -> Script:
        draw = self.rng
        followers = tuple(self._follower(node_id) for node_id in self.nodes)
        logs = tuple(Produce(partition, self._sizes(40)) for partition in self.partitions)
        events: list[tuple[int, Event]] = []
        now_ms = 0
        for _ in range(draw.randint(0, 14)):
            now_ms += int(draw.choice([5, 200, 2000, 8000]) * draw.random()) + 1
            events.append((now_ms, self._event(followers)))
        end_ms = now_ms + draw.choice([1, 5000])
        events.append((end_ms, LearnIds()))
        events += [
            (end_ms, Add(follower.node_id, partition))
            for follower in followers
            for partition in follower.partitions
        ]
        events.append((end_ms, Throttle(() if draw.random() < 0.5 else self._throttles(slow=False))))
        return Script(
            self.seed,
            followers,
            logs,
            tuple(events),
            () if draw.random() < 0.2 else self._throttles(),
            cache_slots=draw.choice([0, 1, 1000, 1000, 1000]),
            latency_ms=draw.choice([1, 3, 20]),
            buffer_bytes=draw.choice([2048, 16384, 100_000]),
            ids_known=draw.random() < 0.8,
        )

    def _sizes(self, most: int) -> tuple[int, ...]:
        return tuple(self.rng.randint(30, self.size_max) for _ in range(self.rng.randint(0, most)))

    def _follower(self, node_id: int) -> FollowerScript:
        draw = self.rng
        version = draw.choice(VERSIONS)
        followed = tuple(draw.sample(self.partitions, draw.randint(1, len(self.partitions))))
        small = self.size_max * (1 if version < 3 else draw.choice([0.3, 3]))
        max_bytes = draw.choice([10_000_000, 10_000_000, int(self.size_max * 2)])
        partition_max_bytes = draw.choice([1_000_000, max(int(small), 60)])
        limits = FetchLimits(
            max_wait_ms=draw.choice([50, 500, 500, 2000]),
            min_bytes=draw.choice([1, 1, 1, min(500, partition_max_bytes, max_bytes)]),
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
        )
        in_sync = tuple(partition for partition in followed if draw.random() < 0.3)
        return FollowerScript(node_id, version, limits, followed, in_sync)

    def _event(self, followers: tuple[FollowerScript, ...]) -> Event:
        draw = self.rng
        follower, partition = draw.choice(followers), draw.choice(self.partitions)
        own = draw.choice(follower.partitions)
        truncated: tuple[tuple[Partition, int], ...] = ()
        if draw.random() < 0.5 and all(one.version >= 12 for one in followers):
            truncated = ((partition, draw.randint(1, 5)),)
        events: list[Event] = [
            Produce(partition, self._sizes(10)),
            Throttle(self._throttles()),
            Throttle(()),
            Restart(truncated),
            Cut(follower.node_id),
            RestartWeir(),
            Remove(follower.node_id, own),
            Add(follower.node_id, own),
            Evict(follower.node_id),
            LearnIds(),
        ]
        return draw.choices(events, [10, 5, 1, 1, 1, 1, 2, 2, 1, 0.5])[0]

    def _throttles(self, *, slow: bool = True) -> Throttles:
        draw, found = self.rng, list[tuple[ConfigKey, str]]()
        least = self.size_max * 4
        rates = [least, least * 5, least * 20, 10**9] + [0, self.size_max // 20 + 1, self.size_max] * slow
        for role in Role:
            if draw.random() < 0.8:
                found.append(rate(role, draw.choice(rates)))
            if draw.random() < 0.3:
                found.append(rate(role, draw.choice(rates), str(draw.choice([LEADER, *self.nodes]))))
            for topic in sorted({topic for topic, _index in self.partitions}):
                if draw.random() < 0.7:
                    found.append(replicas(role, topic, self._list(role, topic)))
        return tuple(found)

    def _list(self, role: Role, topic: str) -> str:
        draw = self.rng
        if draw.random() < 0.5:
            return "*"
        nodes = [LEADER] if role is Role.LEADER else self.nodes
        every = [f"{index}:{node}" for name, index in self.partitions if name == topic for node in nodes]
        return ",".join(one for one in every if draw.random() < 0.6) or "none"
