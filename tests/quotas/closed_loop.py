"""A closed loop in simulated time: clients at one limiter, as connections of Weir let them through.

Produce is charged when it is taken, and mutes its connection. Fetches are charged when the response comes,
and bring nothing while the limiter is over by what other connections have fetched, but a connection that has
waited for them has its turn. A polite client sends one
request at a time, and waits as it is told; a rude one always has the next request waiting.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from typing import NamedTuple

from weir.quotas import Budget


@dataclass(frozen=True, slots=True)
class Loop:
    """What runs: so many connections, for so long; sizes in bytes, times in ms."""

    connections: int = 1
    size: int = 50_000
    fetches: bool = False
    polite: bool = True
    service_ms: int = 4
    lag_ms: int = 20
    """At most so long after a response a polite client's next request comes."""
    duration_ms: int = 60_000
    seed: int = 1


class Seen(NamedTuple):
    passed: list[tuple[int, int]]
    """When (ms) how many bytes were charged."""
    waits_ms: list[int]
    """Throttle times that were told."""


def run(loop: Loop, budget: Budget) -> Seen:
    chance = random.Random(loop.seed)
    seen = Seen([], [])
    in_line: set[int] = set()
    ready = [(chance.randrange(50), number, False) for number in range(loop.connections)]
    heapq.heapify(ready)
    while ready and ready[0][0] < loop.duration_ms:
        now_ms, number, answered = heapq.heappop(ready)
        closed = loop.fetches and budget.closed_until_ms(in_line=number in in_line) > now_ms
        if loop.fetches and not answered and not closed:
            heapq.heappush(ready, (now_ms + loop.service_ms, number, True))
            continue
        wait_ms = budget.tell_rest(now_ms) if closed else _taken(loop, budget, seen, now_ms)
        in_line |= {number} if closed else set()
        if wait_ms:
            seen.waits_ms.append(wait_ms)
        pause_ms = max(wait_ms, 0 if loop.fetches else loop.service_ms)
        lag_ms = chance.randint(1, loop.lag_ms) if loop.polite else 0
        heapq.heappush(ready, (now_ms + pause_ms + lag_ms, number, False))
    return seen


def _taken(loop: Loop, budget: Budget, seen: Seen, now_ms: int) -> int:
    """Charge a produce request, or a fetch response."""
    seen.passed.append((now_ms, loop.size))
    return (budget.charge_in_turn if loop.fetches else budget.charge)(loop.size, now_ms)


def window_rates(seen: Seen, from_ms: int, to_ms: int, window_ms: int = 10_000) -> list[float]:
    """Bytes per second in each window that begins at a ms from `from_ms` on and ends by `to_ms`."""
    before = _charged_before(seen, to_ms)
    starts = range(from_ms, to_ms - window_ms + 1)
    return [(before[start + window_ms] - before[start]) / window_ms * 1000 for start in starts]


def _charged_before(seen: Seen, to_ms: int) -> list[int]:
    charged = [0] * (to_ms + 1)
    for at_ms, size in seen.passed:
        if at_ms < to_ms:
            charged[at_ms + 1] += size
    for at_ms in range(1, to_ms + 1):
        charged[at_ms] += charged[at_ms - 1]
    return charged
