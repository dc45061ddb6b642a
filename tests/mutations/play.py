"""Plays sequences on several sides at once: each step is sent to every side at the same time.

A lane is one sequence on one side. Each step goes over a connection of its own, so that no throttle time
holds it up; a step that is due waits for the answer to the one before it. One loop drives all lanes.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.mutations.requests import NO_ID, Answer, Create, Delete, Grow, Mutation, Result
from weir.protocol.framing import LENGTH, LENGTH_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from tests.mutations.sequences import Step
    from tests.raw import Address

_TIMEOUT_S: Final = 30.0
_READ_BYTES: Final = 1 << 16


class PlayError(Exception):
    """A side did not answer; says which and what."""


class Played(NamedTuple):
    """An answer and when it came, in seconds since the play began."""

    answer: Answer
    """Topic names without the side's prefix."""
    sent_s: float
    answered_s: float


@dataclass(slots=True)
class Lane:
    """One sequence on one side, whose name every topic's name and the client-id begin with."""

    side: str
    name: str
    address: Address
    steps: tuple[Step, ...]
    begins_s: float = 0.0
    """Of the play; the steps' times count from there."""
    played: list[Played] = field(default_factory=list)
    ids: dict[str, UUID] = field(default_factory=dict)
    """Of the topics whose creation told it."""

    @property
    def client_id(self) -> str:
        """Whose bucket is charged."""
        return f"{self.side}-{self.name}"

    @property
    def next(self) -> Step | None:
        """The step to send; None if all are answered."""
        return self.steps[len(self.played)] if len(self.played) < len(self.steps) else None

    @property
    def due_s(self) -> float:
        """When to send the next step; infinity if all are answered."""
        return self.begins_s + self.next.at_s if self.next else math.inf

    def mutation(self, step: Step) -> Mutation:
        """What to ask of this side."""
        return prefixed(step.mutation, f"{self.side}-", self.ids if step.by_id else {})

    def note(self, mutation: Mutation, frame: bytes, sent_s: float, now_s: float) -> None:
        """Keep an answer. Raises ProtocolError."""
        answer = mutation.answer(frame)
        results = tuple(without_prefix(result, f"{self.side}-") for result in answer.results)
        if isinstance(mutation, Create):
            self.ids |= {one.name: one.topic_id for one in results if one.name and one.topic_id != NO_ID}
        self.played.append(Played(Answer(answer.throttle_ms, results), sent_s, now_s))


def prefixed(mutation: Mutation, prefix: str, ids: dict[str, UUID]) -> Mutation:
    """The same with `prefix` before each topic's name; a deletion names those by id whose ids are given."""
    match mutation:
        case Create(topics):
            return replace(mutation, topics=tuple(replace(one, name=prefix + one.name) for one in topics))
        case Grow(counts):
            return replace(mutation, counts=tuple((prefix + name, count) for name, count in counts))
        case Delete(topics):
            named = (ids.get(str(one), f"{prefix}{one}") for one in topics)
            return replace(mutation, topics=tuple(named))


def without_prefix(result: Result, prefix: str) -> Result:
    """The same as if names had no prefix."""
    message, name = result.error_message, result.name
    return replace(
        result,
        name=None if name is None else name.removeprefix(prefix),
        error_message=None if message is None else message.replace(prefix, ""),
    )


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self._began


class _Exchange:
    """One step under way."""

    def __init__(self, lane: Lane, mutation: Mutation, clock: Clock) -> None:
        self.lane = lane
        self._mutation = mutation
        self._clock = clock
        self._received = bytearray()
        self.socket = socket.create_connection(lane.address, _TIMEOUT_S)
        self._sent_s = clock()
        self.socket.sendall(mutation.frame(lane.client_id))

    @property
    def overdue(self) -> bool:
        """Whether the answer should have been here long ago."""
        return self._clock() - self._sent_s > _TIMEOUT_S

    def read(self) -> bool:
        """Take what has come; True when the answer was noted. Raises PlayError."""
        data, now_s = self.socket.recv(_READ_BYTES), self._clock()
        if not data:
            raise self.failure("closed instead of answered")
        self._received += data
        if len(self._received) < LENGTH_BYTES:
            return False
        if len(self._received) < LENGTH_BYTES + LENGTH.unpack_from(self._received)[0]:
            return False
        self.lane.note(self._mutation, bytes(self._received), self._sent_s, now_s)
        return True

    def failure(self, what: str) -> PlayError:
        """An error that says who was asked what."""
        return PlayError(f"{self.lane.client_id}: {what}: {self._mutation}")


def play(lanes: Sequence[Lane]) -> None:
    """Play all lanes to their ends; what came of it is in them. Raises PlayError, OSError, ProtocolError."""
    clock = Clock()
    idle = [lane for lane in lanes if lane.next]
    with selectors.DefaultSelector() as selector:
        try:
            while idle or selector.get_map():
                idle = _send_due(idle, selector, clock)
                wait_s = min([_TIMEOUT_S, *(lane.due_s - clock() for lane in idle)])
                for key, _ in selector.select(max(0.0, wait_s)):
                    idle += _read(key.data, selector)
                _check_overdue(selector)
        finally:
            for key in tuple(selector.get_map().values()):
                key.data.socket.close()


def _send_due(idle: list[Lane], selector: selectors.BaseSelector, clock: Clock) -> list[Lane]:
    """Send what is due; return the lanes whose next step is not."""
    waiting = []
    for lane in idle:
        step = lane.next
        if step is None or lane.due_s > clock():
            waiting.append(lane)
            continue
        exchange = _Exchange(lane, lane.mutation(step), clock)
        selector.register(exchange.socket, selectors.EVENT_READ, exchange)
    return waiting


def _read(exchange: _Exchange, selector: selectors.BaseSelector) -> list[Lane]:
    """The lane that is idle now and has more to do, if any."""
    if not exchange.read():
        return []
    selector.unregister(exchange.socket)
    exchange.socket.close()
    return [exchange.lane] if exchange.lane.next else []


def _check_overdue(selector: selectors.BaseSelector) -> None:
    for key in selector.get_map().values():
        if key.data.overdue:
            raise key.data.failure(f"no answer after {_TIMEOUT_S:.0f} s")
