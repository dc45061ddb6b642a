"""Plays sequences on several sides at once: each step is sent to every side at the same time.

A lane is one sequence on one side. Each step goes over a connection of its own, so that no throttle time
holds it up; a step that is due waits for the answer to the one before it. Each lane has a thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from uuid import UUID

from tests.mutations.requests import NO_ID, Answer, Create, Delete, Grow, Mutation, Result
from tests.mutations.sequences import Step
from tests.raw import Address
from tests.wire.connection import Connection

_TIMEOUT_S: Final = 30.0


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
        return f"{self.side}-{self.name}"

    @property
    def next(self) -> Step | None:
        return self.steps[len(self.played)] if len(self.played) < len(self.steps) else None

    @property
    def due_s(self) -> float:
        """When to send the next step; infinity if all are answered."""
        return self.begins_s + self.next.at_s if self.next else math.inf

    def mutation(self, step: Step) -> Mutation:
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
    message, name = result.error_message, result.name
    return replace(
        result,
        name=None if name is None else name.removeprefix(prefix),
        error_message=None if message is None else message.replace(prefix, ""),
    )


def play(lanes: Sequence[Lane]) -> None:
    """Play all lanes to their ends; what came of it is in them. Raises PlayError, OSError, ProtocolError."""
    began = time.monotonic()
    with ThreadPoolExecutor(max(len(lanes), 1)) as pool:
        for played in [pool.submit(_play, lane, began) for lane in lanes]:
            played.result()


def _play(lane: Lane, began: float) -> None:
    def clock() -> float:
        return time.monotonic() - began

    while step := lane.next:
        time.sleep(max(lane.due_s - clock(), 0.0))  # until the step is due
        mutation = lane.mutation(step)
        with Connection(lane.address, lane.client_id, _TIMEOUT_S) as connection:
            sent_s = clock()
            try:
                frame = connection.exchange(mutation.frame(lane.client_id))
            except (EOFError, TimeoutError) as error:
                raise PlayError(f"{lane.client_id}: {error}: {mutation}") from error
            lane.note(mutation, frame, sent_s, clock())
