"""Clients in simulated time that demand more than a quota allows, and the limiters that throttle them.

The same clients run under any limit: their recording under one limit is the input of a replay, their throttle
times under another limit are the truth that the replay must enclose. Nothing of the replay is used here.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.limiters.smooth import paced
from weir.quotas.mutations import MutationBudget
from weir.quotas.table.entities import Tags
from weir.quotas.table.options import Pacing
from weir.quotas.table.quota_table import QuotaKey

EVERYBODY = Tags("", "")
STRICT = 1


@dataclass(frozen=True)
class Habits:
    """The demand of one connection; numbers are drawn evenly from these ranges."""

    size: tuple[float, float]
    """Units of a request; of a producer with `per_s`: of a full batch."""
    took_ms: tuple[int, int] = (1, 20)
    """Time until the response."""
    think_ms: tuple[int, int] = (0, 0)
    """Time from the end of a wait, or the response, to the next request."""
    in_flight: int = 1
    per_s: float = 0.0
    """Units per second that the application wants to send; the unsent part is its backlog. 0 for a client
    that always has something to send.
    """
    from_ms: int = 0
    until_ms: int = 10**9
    """Time after which it sends nothing more."""
    work: float = float("inf")
    """Units after which it has sent everything."""


class Told(NamedTuple):
    """A recorded request: a row of `RangedReplay.feed`."""

    at_ms: int
    service_ms: int
    value: float
    connection: int
    recorded_ms: int
    note: int
    took_ms: int
    waited_ms: int


@dataclass
class _Connection:
    habits: Habits
    number: int
    dice: random.Random
    until_ms: int = 0
    sent: float = 0.0
    answers: deque[int] = field(default_factory=deque)
    """Times of the responses of the requests in flight."""
    retry: float = 0.0
    """Units of a refused request, to be sent again."""


class Run:
    """One run of clients that share a budget; `rows` is its recording in order of time."""

    def __init__(
        self,
        key: QuotaKey,
        limit: float,
        clients: list[Habits],
        *,
        seed: int,
        until_ms: int,
        pacing: Pacing = Pacing.KAFKA,
    ) -> None:
        self.rows: list[Told] = []
        self._key = key
        self._budget = _budget(key, limit, pacing)
        self._until_ms = until_ms
        self._events: list[tuple[int, int, int, _Connection, int, float]] = []
        self._count = 0
        for number, habits in enumerate(clients):
            one = _Connection(habits, number, random.Random(f"{seed} {number}"))
            self._plan(habits.from_ms + one.dice.randint(0, 50), 1, one)
        while self._events:
            now_ms, what, _count, one, asked_ms, size = heappop(self._events)
            (self._answer if what == 0 else self._send)(one, now_ms, asked_ms, size)
        self.rows.sort(key=lambda row: (row.at_ms, 2 * row.recorded_ms + (not row.value), row.connection))

    @property
    def throttle_ms(self) -> int:
        return sum(row.recorded_ms for row in self.rows)

    @property
    def throttled_ms(self) -> int:
        until = total = 0
        waits = ((row.at_ms + row.service_ms, row.recorded_ms) for row in self.rows if row.recorded_ms)
        for start, wait in sorted(waits):
            total += max(0, start + wait - max(start, until))
            until = max(until, start + wait)
        return total

    def _plan(self, when_ms: int, what: int, one: _Connection, asked_ms: int = 0, size: float = 0) -> None:
        self._count += 1
        heappush(self._events, (when_ms, what, self._count, one, asked_ms, size))

    def _send(self, one: _Connection, now_ms: int, _asked_ms: int, _size: float) -> None:
        habits = one.habits
        if now_ms >= min(self._until_ms, habits.until_ms) or one.sent >= habits.work:
            return
        if one.until_ms > now_ms:
            self._plan(one.until_ms, 1, one)
            return
        size = one.retry or self._size(one, now_ms)
        if not size:
            self._plan(now_ms + 10, 1, one)
            return
        took_ms = one.dice.randint(*habits.took_ms)
        if self._key in (QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE):
            self._plan(now_ms + took_ms, 0, one, now_ms, size)
            return
        wait_ms, charged = self._charge(one, size, now_ms, took_ms)
        note = STRICT if self._key is QuotaKey.CONTROLLER_MUTATION_RATE else 0
        service_ms = took_ms if note else 0
        self._record(one, now_ms, service_ms, charged, wait_ms, note, took_ms)
        one.until_ms = max(one.until_ms, now_ms + service_ms + wait_ms)
        one.answers.append(now_ms + took_ms)
        free_ms = now_ms if len(one.answers) < habits.in_flight else one.answers.popleft()
        self._next(one, max(free_ms, now_ms))

    def _charge(self, one: _Connection, size: float, now_ms: int, took_ms: int) -> tuple[int, float]:
        """Return the throttle time, and the units that were charged: 0 if the request was refused."""
        if not isinstance(self._budget, MutationBudget):
            one.sent += size
            return self._budget.charge(size, now_ms), size
        request = self._budget.begin(strict=True)
        admitted = request.admit(size, now_ms)
        one.sent += size if admitted else 0.0
        one.retry = 0.0 if admitted else size
        return request.finish(now_ms + took_ms), size if admitted else 0.0

    def _answer(self, one: _Connection, now_ms: int, asked_ms: int, size: float) -> None:
        assert isinstance(self._budget, Budget)
        service_ms, note, charged = now_ms - asked_ms, 1, size
        if isinstance(self._budget, RequestBudget):
            wait_ms = self._budget.charge_api(note, size, now_ms)
        else:
            wait_ms = max(self._budget.throttled_until_ms - now_ms, 0)
            charged = 0.0 if wait_ms else size
            wait_ms = wait_ms or self._budget.charge(size, now_ms)
        one.sent += charged
        one.retry = 0.0 if charged else size
        self._record(one, asked_ms, service_ms, charged, wait_ms, note, service_ms)
        one.until_ms = now_ms + wait_ms
        self._next(one, now_ms)

    def _next(self, one: _Connection, free_ms: int) -> None:
        thought_ms = one.dice.randint(*one.habits.think_ms)
        self._plan(max(free_ms, one.until_ms) + thought_ms, 1, one)

    def _record(
        self, one: _Connection, at: int, service: int, value: float, wait: int, note: int, took: int
    ) -> None:
        self.rows.append(Told(at, service, value, one.number, wait, note, took, wait))

    def _size(self, one: _Connection, now_ms: int) -> float:
        habits = one.habits
        if not habits.per_s:
            return _draw(one.dice, habits.size)
        wanted = (now_ms - habits.from_ms) / 1000 * habits.per_s - one.sent
        least, most = habits.size
        return min(wanted, most) if wanted >= least else 0.0


def _draw(dice: random.Random, between: tuple[float, float]) -> float:
    return (
        float(round(dice.uniform(*between), 6)) if between[1] < 50 else float(round(dice.uniform(*between)))
    )


def _budget(key: QuotaKey, limit: float, pacing: Pacing) -> Budget | MutationBudget:
    if key is QuotaKey.REQUEST_PERCENTAGE:
        return RequestBudget(EVERYBODY, limit, 0)
    if key is QuotaKey.CONTROLLER_MUTATION_RATE:
        return MutationBudget(EVERYBODY, limit, 0)
    return paced(Budget(EVERYBODY, limit, 0), pacing)
