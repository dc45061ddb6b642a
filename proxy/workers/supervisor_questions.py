"""Questions of a worker that the supervisor answers: altered quotas, created topics."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

log = structlog.get_logger("weir")

A = TypeVar("A")


class SupervisorQuestions(Generic[A]):
    """The worker's side: the functions that wait for answers."""

    def __init__(self, first_number: int) -> None:
        """Begin without a question. Questions have numbers from `first_number` on: the supervisor may still
        answer a question of the process before this one, which had other numbers.
        """
        self._numbers = itertools.count(first_number)
        self._waiting: dict[int, Callable[[A], None]] = {}

    def begin(self, done: Callable[[A], None]) -> int:
        """Return the number of a new question; `done` is called with its answer."""
        number = next(self._numbers)
        self._waiting[number] = done
        return number

    def take(self, number: int, answer: A) -> None:
        """Pass the answer to the function that waits for it, if any."""
        done = self._waiting.pop(number, None)
        if done is not None:
            call_back(done, answer)


def call_back(done: Callable[[A], None], result: A) -> None:
    """Call `done` with the result, and log an exception: a bug in one connection must not affect others."""
    try:
        done(result)
    except Exception:
        log.exception("internal error while a quota request was answered")
