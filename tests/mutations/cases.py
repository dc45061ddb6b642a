"""Single requests, and what KRaft controllers (3.9.1, 4.2.0) make of them: the table of
docs/reference/mutations.md.

Each is asked twice, by a client whose bucket is full and by one that has overdrawn it. The quota is so small
that a bucket holds a tenth of a token, so that one partition overdraws it, and takes minutes to get it back.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from tests.mutations.client import ask_once, await_topic
from tests.mutations.requests import NO_ID, Create, Delete, Grow, Mutation, Topic
from tests.raw import Address
from weir.protocol.error_codes import ErrorCode

RATE: Final = 0.01
SAMPLES: Final = 10
BURST: Final = RATE * SAMPLES
DEFAULT_PARTITIONS: Final = 3
NOBODY: Final = 99
REFUSED: Final = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
SETUP: Final = "setup"
"""The client-id of a client without a quota."""


class Seen(NamedTuple):
    codes: tuple[int, ...]
    """Error codes: of creations in the response's order, else sorted, for that order is left to chance."""
    cost: int
    """Tokens taken."""
    throttled: bool
    """Whether the response has a throttle time."""


class Stage:
    """Where cases are played: names that nobody has used, and topics to work on."""

    _numbers = itertools.count(1)

    def __init__(self, address: Address, setup: Address) -> None:
        """Requests go to `address`, what prepares them to `setup`."""
        self._address = address
        self._setup = setup
        self._run = time.time_ns()

    def name(self) -> str:
        return f"case-{self._run}-{next(self._numbers)}"

    def topic(self, partitions: int = 2) -> str:
        return self._made(partitions)[0]

    def topic_id(self, partitions: int = 2) -> UUID:
        return self._made(partitions)[1]

    def _made(self, partitions: int) -> tuple[str, UUID]:
        name = self.name()
        (result,) = ask_once(self._setup, SETUP, Create((Topic(name, partitions),))).results
        assert result.error_code == 0, result
        await_topic(self._setup, name)
        return name, result.topic_id

    def play(self, case: Case, *, overdrawn: bool) -> Seen:
        """One case by a client of its own. Raises OSError, EOFError, ProtocolError."""
        client, balance = self.name(), BURST
        if overdrawn:
            assert ask_once(self._address, client, Create((Topic(self.name()),))).error_codes == (0,)
            balance -= 1
        mutation = case.make(self)
        answer = ask_once(self._address, client, mutation)
        codes = answer.error_codes if isinstance(mutation, Create) else tuple(sorted(answer.error_codes))
        return Seen(codes, round(balance - self._balance(client, balance)), answer.throttle_ms > 0)

    def _balance(self, client: str, at_most: float) -> float:
        """What is left: a creation that is refused tells; one that is not shows that nothing was taken."""
        answer = ask_once(self._address, client, Create((Topic(self.name()),)))
        return -RATE * answer.throttle_ms / 1000 if answer.throttle_ms else at_most


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    make: Callable[[Stage], Mutation]
    full: Seen
    overdrawn: Seen
    overdrawn_at_weir: Seen | None = None
    """Where Weir differs, which forwards nothing for which there are no tokens: docs/reference/mutations.md.
    """


def free(name: str, make: Callable[[Stage], Mutation], *errors: ErrorCode) -> Case:
    """Fails for reasons of its own, however much there is."""
    seen = Seen(tuple(map(int, errors)), 0, throttled=False)
    return Case(name, make, seen, seen)


def hidden(name: str, make: Callable[[Stage], Mutation], error: ErrorCode) -> Case:
    """Fails for a reason that only the broker sees."""
    seen = Seen((int(error),), 0, throttled=False)
    return Case(name, make, seen, seen, overdrawn_at_weir=Seen((REFUSED,), 0, throttled=True))


def strict(name: str, make: Callable[[Stage], Mutation], cost: int, error: int = 0) -> Case:
    """Admitted whatever it costs, or refused."""
    return Case(name, make, Seen((error,), cost, throttled=False), Seen((REFUSED,), 0, throttled=True))


def permissive(name: str, make: Callable[[Stage], Mutation], cost: int, error: int = 0) -> Case:
    """Admitted, and whoever overdraws waits."""
    seen = Seen((error,), cost, throttled=True)
    return Case(name, make, seen, seen)


def _create(
    version: int, partitions: int = 1, replicas: int = 1, validate_only: bool = False
) -> Callable[[Stage], Mutation]:
    return lambda stage: Create((Topic(stage.name(), partitions, replicas),), version, validate_only)


def _assign(version: int, *node_ids: int) -> Callable[[Stage], Mutation]:
    assignments = [[node_id] for node_id in node_ids]
    return lambda stage: Create((Topic(stage.name(), assignments=assignments),), version)


def _always(mutation: Mutation) -> Callable[[Stage], Mutation]:
    return lambda _stage: mutation


def _configure(name: str, value: str) -> Callable[[Stage], Mutation]:
    return lambda stage: Create((Topic(stage.name(), 2, configs={name: value}),))


def _grow(
    version: int, count: int, validate_only: bool = False, assignments: list[list[int]] | None = None
) -> Callable[[Stage], Mutation]:
    return lambda stage: Grow(((stage.topic(), count),), version, validate_only, assignments)


def _some_fail(stage: Stage) -> Mutation:
    topics = (Topic(stage.topic()), Topic(stage.name(), 2), Topic("a/b"), Topic(stage.name(), 3))
    return Create(topics)


def _repeated(stage: Stage) -> Mutation:
    first, twice, last = (Topic(stage.name(), 1) for _ in range(3))
    return Create((first, twice, twice, last), version=5)


def _repeated_strict(stage: Stage) -> Mutation:
    twice, two, three = Topic(stage.name()), Topic(stage.name(), 2), Topic(stage.name(), 3)
    return Create((twice, two, twice, three))


def _delete_twice(topic: Callable[[Stage], str | UUID]) -> Callable[[Stage], Mutation]:
    return lambda stage: Delete((topic(stage),) * 2)


def _grow_twice(stage: Stage) -> Mutation:
    name = stage.topic()
    return Grow(((name, 3), (name, 4)))


_E = ErrorCode
CASES: Final = (
    strict("creation", _create(7, partitions=2), 2),
    strict("creation, v6", _create(6, partitions=2), 2),
    permissive("creation, v5", _create(5, partitions=2), 2),
    permissive("creation, v2", _create(2, partitions=2), 2),
    strict("creation, validate_only", _create(7, validate_only=True, partitions=2), 2),
    permissive("creation, validate_only, v5", _create(5, validate_only=True, partitions=2), 2),
    strict("creation of num.partitions", _create(7, partitions=-1), DEFAULT_PARTITIONS),
    permissive("creation of num.partitions, v2", _create(2, partitions=-1), DEFAULT_PARTITIONS),
    strict("creation with assignments", _assign(7, 0, 0), 2),
    free("creation, topic exists", lambda stage: Create((Topic(stage.topic()),)), _E.TOPIC_ALREADY_EXISTS),
    free("creation, bad name", _always(Create((Topic("a/b", 2),))), _E.INVALID_TOPIC_EXCEPTION),
    free("creation of 0 partitions", _create(7, partitions=0), _E.INVALID_PARTITIONS),
    free("creation of -2 partitions", _create(7, partitions=-2), _E.INVALID_PARTITIONS),
    free("creation of 0 replicas", _create(7, replicas=0), _E.INVALID_REPLICATION_FACTOR),
    free("creation with more replicas than brokers", _create(7, replicas=3), _E.INVALID_REPLICATION_FACTOR),
    hidden("creation with an unknown config", _configure("no.such", "1"), _E.INVALID_CONFIG),
    hidden("creation with a bad config", _configure("retention.ms", "x"), _E.INVALID_CONFIG),
    free("creation on an unknown broker", _assign(7, 0, NOBODY), _E.INVALID_REPLICA_ASSIGNMENT),
    Case(
        "creations, some of which fail",
        _some_fail,
        Seen((36, 0, 17, REFUSED), 2, throttled=True),
        Seen((36, REFUSED, 17, REFUSED), 0, throttled=True),
    ),
    Case(
        "creations, one said twice, v5",
        _repeated,
        Seen((0, 0, int(_E.INVALID_REQUEST)), 2, throttled=True),
        Seen((0, 0, int(_E.INVALID_REQUEST)), 2, throttled=True),
    ),
    Case(
        "creations, one said twice",
        _repeated_strict,
        Seen((0, REFUSED, int(_E.INVALID_REQUEST)), 2, throttled=True),
        Seen((REFUSED, REFUSED, int(_E.INVALID_REQUEST)), 0, throttled=True),
    ),
    strict("growth", _grow(3, 4), 2),
    permissive("growth, v2", _grow(2, 4), 2),
    strict("growth, validate_only", _grow(3, 4, validate_only=True), 2),
    strict("growth with assignments", _grow(3, 4, assignments=[[0], [0]]), 2),
    free("growth to what there is", _grow(3, 2), _E.INVALID_PARTITIONS),
    free("growth to less", _grow(3, 1), _E.INVALID_PARTITIONS),
    free("growth, topic unknown", lambda stage: Grow(((stage.name(), 4),)), _E.UNKNOWN_TOPIC_OR_PARTITION),
    free("growth, topic said twice", _grow_twice, _E.INVALID_REQUEST),
    free("growth, too few assignments", _grow(3, 4, assignments=[[0]]), _E.INVALID_REPLICA_ASSIGNMENT),
    free("growth, too few assignments, v2", _grow(2, 4, assignments=[[0]]), _E.INVALID_REPLICA_ASSIGNMENT),
    strict("growth on an unknown broker", _grow(3, 4, assignments=[[0], [NOBODY]]), 2, error=39),
    permissive("growth on an unknown broker, v2", _grow(2, 4, assignments=[[0], [NOBODY]]), 2, error=39),
    strict("deletion", lambda stage: Delete((stage.topic(),)), 2),
    strict("deletion by id", lambda stage: Delete((stage.topic_id(),)), 2),
    strict("deletion, v5", lambda stage: Delete((stage.topic(),), 5), 2),
    permissive("deletion, v4", lambda stage: Delete((stage.topic(),), 4), 2),
    free("deletion, name unknown", lambda stage: Delete((stage.name(),)), _E.UNKNOWN_TOPIC_OR_PARTITION),
    free("deletion, id unknown", _always(Delete((UUID(int=1 << 70),))), _E.UNKNOWN_TOPIC_ID),
    free("deletion, name said twice", _delete_twice(Stage.topic), _E.INVALID_REQUEST),
    free("deletion, id said twice", _delete_twice(Stage.topic_id), _E.INVALID_REQUEST),
    free("deletion of nothing", _always(Delete((NO_ID,))), _E.INVALID_REQUEST),
)
