"""Random sequences of mutations, and what KIP-599 says of each: the same sequence for the same seed.

A sequence is one client's, with a bucket of its own: RATE tokens a second, BURST of them at most. Steps are
planned so that no decision is a close one. The bucket fills by one token a second and costs are whole, so a
balance can only be near zero near a whole second after the bucket was last full: no step is within
`MARGIN_S` of one.

What is generated is what KRaft controllers process in an order that can be known: creations in the
request's. They process growths and deletions in the order of Java hashes of names and ids, so of those that
have several topics all cost the same, and what is compared is how many were refused; their topics are not
used again. Topic names are those of a sequence, without the side's prefix.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.mutations.requests import DELETE_BY_ID, Create, Delete, Grow, Mutation, Topic
from weir.protocol.error_codes import ErrorCode

RATE: Final = 1.0
SAMPLES: Final = 3
WINDOW_S: Final = 2
BURST: Final = RATE * SAMPLES * WINDOW_S
DEFAULT_PARTITIONS: Final = 3
"""The cluster's `num.partitions`."""
MARGIN_S: Final = 0.4
SEEDS: Final = range(225, 237)
SECONDS: Final = 15.0
"""Sequences, and for how long, in which every version of the three requests occurs."""
SETTLED_S: Final = 0.85
"""A topic is left alone for so long after it was created or grown. A proxy learns partition counts from a
broker's metadata, which follow the controller's with a delay.
"""
_OFFSETS_S: Final = (0.4, 0.5, 0.6)
_NOBODY: Final = 99
"""A node id that no broker has."""

STRICT_FROM: Final = {Create: 6, Grow: 3, Delete: 5}
HIGHEST: Final = {Create: 7, Grow: 3, Delete: 6}


@dataclass(frozen=True, slots=True)
class Expected:
    codes: Counter[tuple[str, int]]
    """(topic, error code), how often. The topic is "" where it depends on hashes who is refused."""
    wait_s: float | None
    """From the last violation until the balance is zero again; None: none."""
    full_before: bool
    """Whether the bucket was full when the step began: the balance counts from here."""
    balance: float
    """After the step."""


@dataclass(frozen=True, slots=True)
class Step:
    at_s: float
    """Since the sequence began."""
    mutation: Mutation
    expected: Expected
    by_id: bool = False
    """A deletion that names its topics by id."""


@dataclass(slots=True)
class _Bucket:
    """KIP-599's token bucket, in the plan's time."""

    tokens: float = BURST
    at_s: float = 0.0

    def refill(self, now_s: float) -> None:
        self.tokens = min(BURST, self.tokens + RATE * (now_s - self.at_s))
        self.at_s = now_s


@dataclass(frozen=True, slots=True)
class _Charge:
    """One topic of a request: what it costs, or which error it has before a quota is asked."""

    topic: str
    cost: int = 0
    error: int = 0
    late_error: int = 0
    """An error that is found only after the charge."""


class Sequence:
    def __init__(self, seed: int, name: str, seconds: float) -> None:
        self.name = name
        self._random = random.Random(seed)
        self._seconds = seconds
        self._bucket = _Bucket()
        self._topics: dict[str, int] = {}
        self._changed_s: dict[str, float] = {}
        self._ids_known: set[str] = set()
        self._made = 0
        self._full_s = 0.0

    def steps(self) -> Iterator[Step]:
        at_s = 0.0
        while at_s < self._seconds:
            yield self._step(at_s)
            at_s = self._later(at_s)

    def _later(self, now_s: float) -> float:
        """A time for the next step: away from whole seconds since the bucket was full, and now and then
        at once. One at which it would be almost full is put off.
        """
        since_s = now_s - self._full_s
        if since_s and round(since_s % 1, 3) < max(_OFFSETS_S) and self._random.random() < 0.3:
            return round(now_s + 0.1, 3)
        wait_s = self._random.choice((1, 1, 2, 2, 3)) if self._bucket.tokens > -6 else 4
        return round(self._full_s + int(since_s) + wait_s + self._random.choice(_OFFSETS_S[:2]), 3)

    def _step(self, at_s: float) -> Step:
        self._bucket.refill(at_s)
        full = self._bucket.tokens >= BURST
        if full:
            self._full_s = at_s
        kinds = (self._create, self._create, self._grow, self._delete)
        mutation, charges, by_id = self._random.choice(kinds)() if at_s else self._begin()
        return Step(at_s, mutation, self._judge(mutation, charges, full=full), by_id)

    def _judge(self, mutation: Mutation, charges: list[_Charge], *, full: bool) -> Expected:
        """Charge the bucket topic by topic, and note what there is afterwards."""
        strict = mutation.version >= STRICT_FROM[type(mutation)]
        codes, wait_s = [], None
        for charge in charges:
            code = charge.error
            if not code and strict and self._bucket.tokens < 0:
                code, wait_s = ErrorCode.THROTTLING_QUOTA_EXCEEDED, -self._bucket.tokens / RATE
            elif not code:
                self._bucket.tokens -= charge.cost
                code = charge.late_error
                if not strict and self._bucket.tokens < 0:
                    wait_s = -self._bucket.tokens / RATE
            codes.append(int(code))
        in_order = isinstance(mutation, Create) or len(set(codes)) == 1
        for charge, code in zip(charges, codes, strict=True):
            self._note(mutation, charge, code, in_order=in_order)
        topics = [charge.topic if in_order else "" for charge in charges]
        return Expected(Counter(zip(topics, codes, strict=True)), wait_s, full, self._bucket.tokens)

    def _note(self, mutation: Mutation, charge: _Charge, code: int, *, in_order: bool) -> None:
        self._changed_s[charge.topic] = self._bucket.at_s
        if not in_order or (isinstance(mutation, Delete) and not code):
            self._topics.pop(charge.topic, None)
        elif isinstance(mutation, Delete) or code or mutation.validate_only:
            pass
        elif isinstance(mutation, Grow):
            self._topics[charge.topic] += charge.cost
        else:
            self._topics[charge.topic] = charge.cost
            if mutation.version == HIGHEST[Create]:
                self._ids_known.add(charge.topic)

    # What to ask.

    def _name(self) -> str:
        self._made += 1
        return f"{self.name}-{self._made}"

    def _version(self, kind: type[Mutation]) -> int:
        strict, highest = STRICT_FROM[kind], HIGHEST[kind]
        at_least = strict if self._random.random() < 0.6 else 0
        return self._random.randint(at_least, highest)

    def _settled(self) -> list[str]:
        now_s = self._bucket.at_s
        return [name for name in sorted(self._topics) if now_s - self._changed_s[name] > SETTLED_S]

    def _existing(self, at_most: int = 1) -> list[str]:
        names = self._settled()
        return self._random.sample(names, min(len(names), at_most))

    def _create(self) -> tuple[Mutation, list[_Charge], bool]:
        """CreateTopics of one to four topics, some of which fail."""
        version = self._version(Create)
        topics, charges = list[Topic](), list[_Charge]()
        for _ in range(self._random.choice((1, 1, 2, 3, 4))):
            topic, charge = self._creation()
            if topic.name not in {one.name for one in topics}:
                topics.append(topic)
                charges.append(charge)
        if self._random.random() < 0.1:
            twice = Topic(self._name(), 1)
            topics[:0] = [twice]
            topics.append(twice)
            charges.append(_Charge(twice.name, error=ErrorCode.INVALID_REQUEST))
        validate_only = version >= 1 and self._random.random() < 0.4
        return Create(tuple(topics), version, validate_only), charges, False

    def _begin(self) -> tuple[Mutation, list[_Charge], bool]:
        topics = tuple(Topic(self._name(), size) for size in (1, 1, 1, 2))
        return Create(topics, HIGHEST[Create]), [_Charge(one.name, one.partitions) for one in topics], False

    def _creation(self) -> tuple[Topic, _Charge]:
        name, size = self._name(), self._random.choice((1, 1, 2, 2, 4))
        match self._random.choice(("good", "good", "good", "default", "manual", "exists", "bad")):
            case "default":
                return Topic(name, -1), _Charge(name, DEFAULT_PARTITIONS)
            case "manual":
                return Topic(name, assignments=[[0]] * size), _Charge(name, size)
            case "exists" if settled := self._existing():
                (name,) = settled
                return Topic(name, size), _Charge(name, error=ErrorCode.TOPIC_ALREADY_EXISTS)
            case "bad":
                return self._bad_creation(name, size)
        return Topic(name, size), _Charge(name, size)

    def _bad_creation(self, name: str, size: int) -> tuple[Topic, _Charge]:
        topic, error = self._random.choice(
            (
                (Topic(f"{name}/", size), ErrorCode.INVALID_TOPIC_EXCEPTION),
                (Topic(name, 0), ErrorCode.INVALID_PARTITIONS),
                (Topic(name, -2), ErrorCode.INVALID_PARTITIONS),
                (Topic(name, size, replicas=3), ErrorCode.INVALID_REPLICATION_FACTOR),
                (Topic(name, size, configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
                (Topic(name, assignments=[[_NOBODY]] * size), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            )
        )
        return topic, _Charge(topic.name, error=error)

    def _grow(self) -> tuple[Mutation, list[_Charge], bool]:
        """CreatePartitions: of one topic in any way, or of several by the same number each."""
        version, validate_only = self._version(Grow), self._random.random() < 0.3
        names, more = self._existing(self._random.choice((1, 1, 3))), self._random.randint(1, 3)
        if not names:
            name = self._name()
            unknown = [_Charge(name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
            return Grow(((name, 4),), version, validate_only), unknown, False
        if len(names) == 1 and self._random.random() < 0.4:
            return self._odd_growth(names[0], version, validate_only=validate_only)
        counts = tuple((name, self._topics[name] + more) for name in names)
        return Grow(counts, version, validate_only), [_Charge(name, more) for name in names], False

    def _odd_growth(
        self, name: str, version: int, *, validate_only: bool
    ) -> tuple[Mutation, list[_Charge], bool]:
        """With assignments, or one that fails; of those an unknown broker is found after the charge."""
        count, invalid = self._topics[name], ErrorCode.INVALID_REPLICA_ASSIGNMENT
        match self._random.choice(("equal", "fewer", "manual", "too few", "nobody")):
            case "equal":
                added, ids, charge = 0, None, _Charge(name, error=ErrorCode.INVALID_PARTITIONS)
            case "fewer":
                added, ids, charge = -count, None, _Charge(name, error=ErrorCode.INVALID_PARTITIONS)
            case "manual":
                added, ids, charge = 2, [[0], [0]], _Charge(name, 2)
            case "too few":
                added, ids, charge = 2, [[0]], _Charge(name, error=invalid)
            case _:
                added, ids, charge = 2, [[0], [_NOBODY]], _Charge(name, 2, late_error=invalid)
        return Grow(((name, count + added),), version, validate_only, ids), [charge], False

    def _delete(self) -> tuple[Mutation, list[_Charge], bool]:
        """DeleteTopics: of one topic, of several of one size, or of one that does not exist."""
        version = self._version(Delete)
        names = self._existing()
        if not names or self._random.random() < 0.15:
            name = self._name()
            return (
                Delete((name,), version),
                [_Charge(name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
                False,
            )
        size = self._topics[names[0]]
        if self._random.random() < 0.4:
            names = [name for name in self._settled() if self._topics[name] == size][:3]
        by_id = version >= DELETE_BY_ID and self._ids_known.issuperset(names)
        return Delete(tuple(names), version), [_Charge(name, size) for name in names], by_id


def sequence(seed: int, name: str, seconds: float) -> tuple[Step, ...]:
    """The steps of a client for about this long; the same for the same arguments."""
    return tuple(Sequence(seed, name, seconds).steps())
