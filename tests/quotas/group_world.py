"""Members of one group in simulated time: closed loops that charge one chain each, and wait as told."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.chain import Chain
from weir.quotas.table.entities import Tags

LIMIT = 1_000_000.0
"""Bytes per second of the group."""
SIZE = 5000.0
"""Bytes of a request: 5 ms of the limit."""
WARM_MS = 15_000
BEGIN_MS = range(WARM_MS, WARM_MS + 11_000, 500)
"""Beginnings (ms) of the minutes of which rates are the mean: greedy clients use up a window at once."""
MINUTE_MS = 55_000


@dataclass(frozen=True)
class SimulatedMember:
    demand: float
    """Bytes per second that the member sends while nothing makes it wait, as a share of the limit."""
    floor: float = 0.0
    """As a share of the limit; 0 for none."""
    connections: int = 1
    sends_ms: range = range(10**9)
    """Times at which it sends."""


class GroupCharge(NamedTuple):
    """A request of a member."""

    at_ms: int
    member: int
    wait_ms: int


@dataclass(frozen=True)
class MemberUse:
    """What one member did."""

    rate: float
    """As a share of the limit."""
    longest_ms: int
    """Longest wait."""


def charge(
    members: Sequence[SimulatedMember], end_ms: int, kind: type[Budget] = Budget
) -> Iterator[GroupCharge]:
    """Yield the requests of the members in order of time, from a cold start."""
    group = kind(Tags("", "", group="all"), LIMIT, 0)
    group.floors = Budget(Tags("", "", group="all"), LIMIT, 0)
    chains = [
        Chain(None, (group,), Budget(Tags(str(number), ""), LIMIT * each.floor, 0) if each.floor else None)
        for number, each in enumerate(members)
    ]
    order = count()
    events: list[tuple[float, int, int]] = []
    pauses_ms = [1000 * SIZE * each.connections / (each.demand * LIMIT) for each in members]
    for number, each in enumerate(members):
        # Their beginnings are spread by the golden ratio, a sequence without clusters.
        for connection in range(each.connections):
            first_ms = each.sends_ms.start + pauses_ms[number] * ((number + connection) * 0.618 % 1)
            heapq.heappush(events, (first_ms, next(order), number))
    while events and events[0][0] < end_ms:
        at_ms, _order, number = heapq.heappop(events)
        if int(at_ms) in members[number].sends_ms:
            wait_ms = chains[number].charge(SIZE, int(at_ms))
            yield GroupCharge(int(at_ms), number, wait_ms)
            heapq.heappush(events, (at_ms + max(wait_ms, pauses_ms[number]), next(order), number))


def simulate(members: Sequence[SimulatedMember], kind: type[Budget] = Budget) -> list[MemberUse]:
    """Run the members from a cold start; return their rates over a minute, and longest waits."""
    used, longest = Counter[int](), Counter[int]()
    for at_ms, number, wait_ms in charge(members, BEGIN_MS[-1] + MINUTE_MS, kind):
        used[number] += sum(begin_ms <= at_ms < begin_ms + MINUTE_MS for begin_ms in BEGIN_MS)
        longest[number] = max(longest[number], wait_ms)
    bytes_per_use = SIZE / len(BEGIN_MS) / MINUTE_MS * 1000
    return [
        MemberUse(used[number] * bytes_per_use / LIMIT, longest[number]) for number in range(len(members))
    ]
