"""Several Weirs on a simulated topic, in simulated time: their clients, delays, losses and pauses."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from weir.quotas.client_quotas import byte_rates
from weir.quotas.sharing.blindness import Blindness
from weir.quotas.sharing.others import OthersUsage
from weir.quotas.sharing.own import EPSILON, PAUSE_MS, OwnUsage
from weir.quotas.sharing.report import UsageReport, decode, encode
from weir.quotas.sharing.shared import LOOK_MS, SharedLimiters
from weir.quotas.table.entities import Entity
from weir.quotas.table.quota_table import QuotaKey, QuotaTable

LIMIT = 1_000_000.0
"""Bytes per second that all clients may produce together."""
WINDOW_S = 10
MEMORY_MS = 11_000
SIZE = 5000.0
"""Bytes of a request."""
QUIET_MS = 2000
"""Time (ms) in which the Weirs hear each other before clients come."""
STEP_MS = 10
"""Time (ms) between two sums of used bytes."""
KEY = QuotaKey.PRODUCER_BYTE_RATE
TABLE = QuotaTable({(Entity(user="app"), KEY): LIMIT})


@dataclass(frozen=True)
class Conditions:
    delay_ms: int = 100
    """Longest time (ms) from sending a report to reading it."""
    shortest: float = 0.5
    """Shortest time from sending a report to reading it, as a share of the longest one."""
    lost: float = 0.0
    """Share of the reports that a Weir never reads."""
    doubled: float = 0.0
    """Share of the reports that a Weir reads twice."""


class SimulatedWeir:
    """One Weir: its limiters and its side of the topic."""

    def __init__(self, name: str, incarnation: int, now_ms: int) -> None:
        self.name = name
        self.quotas = byte_rates(KEY)
        self.quotas.use(TABLE)
        self.own = OwnUsage(name, incarnation)
        self.others = OthersUsage(name, incarnation)
        self.blindness = Blindness(now_ms)
        self.shared = SharedLimiters(self.own, self.blindness, MEMORY_MS)
        self.shared.join((None, "cluster produce", False), self.quotas, WINDOW_S)
        self.read_back = -1
        self.used = 0.0
        self.alive = True
        self.cut_off = False
        self.opens_ms = 0
        """Time (ms) until which the topic is closed for this Weir: it reads, and cannot send."""
        self.loses_until_ms = 0
        """Time (ms) until which the reports of this Weir are lost on their way to the topic."""
        self.paused_until_ms = 0

    def charge(self, size: float, now_ms: int) -> int:
        """Charge a request of a client; return its throttle time (ms)."""
        limiter = self.quotas.budget("app", "", now_ms)
        assert limiter is not None
        self.used += size
        return limiter.charge(size, now_ms)

    def read(self, report: UsageReport, now_ms: int) -> None:
        self.others.take(report, now_ms)
        if self.others.read_back > self.read_back:
            self.read_back = self.others.read_back
            self.blindness.heard(len(self.others.weirs(now_ms)), now_ms)
        self.own.returned(self.others.returned())
        self.shared.absorb(self.others.charges(), now_ms)


@dataclass
class World:
    """Weirs, their clients and the topic; runs events in the order of time."""

    conditions: Conditions
    random: Random
    now_ms: int = 0
    weirs: list[SimulatedWeir] = field(default_factory=list)
    used: list[tuple[int, float]] = field(default_factory=list)
    """(Time in ms, bytes) of each request of all clients."""
    sent: list[UsageReport] = field(default_factory=list)
    """Reports in the topic."""
    _at_ms: float = 0.0
    """Time of the present event; between two full ms, where requests follow each other faster."""
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _number: count[int] = field(default_factory=count)
    _arrivals: dict[int, int] = field(default_factory=dict)

    def at(self, at_ms: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._number), call))

    def run(self, until_ms: int) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self._at_ms, _number, call = heapq.heappop(self._events)
            self.now_ms = int(self._at_ms)
            call()
        self.now_ms = until_ms

    def start(self, name: str, incarnation: int = 1) -> SimulatedWeir:
        weir = SimulatedWeir(name, incarnation, self.now_ms)
        self.weirs.append(weir)
        self.at(self.now_ms + self.random.randrange(LOOK_MS), lambda: self._look(weir))
        return weir

    def _look(self, weir: SimulatedWeir) -> None:
        if not weir.alive:
            return
        self.at(self.now_ms + LOOK_MS, lambda: self._look(weir))
        if weir.paused_until_ms > self.now_ms:
            return
        weir.shared.look(self.now_ms)
        for report in weir.own.due(self.now_ms):
            weir.others.sent = weir.own.sequence
            if weir.opens_ms > self.now_ms:
                weir.own.unsent(report.sequence)
            elif not weir.cut_off and weir.loses_until_ms <= self.now_ms:
                self.sent.append(report)
                self._send(encode(report))

    def _send(self, data: bytes) -> None:
        for weir in self.weirs:
            if weir.alive and not weir.cut_off and self.random.random() >= self.conditions.lost:
                for _copy in range(1 + (self.random.random() < self.conditions.doubled)):
                    self._arrive(weir, data)

    def _arrive(self, weir: SimulatedWeir, data: bytes) -> None:
        delay_ms = int(self.conditions.delay_ms * self.random.uniform(self.conditions.shortest, 1))
        at_ms = max(self.now_ms + delay_ms, self._arrivals.get(id(weir), 0), weir.paused_until_ms)
        self._arrivals[id(weir)] = at_ms
        self.at(at_ms, lambda: weir.read(decode(data), self.now_ms) if weir.alive else None)

    def client(self, weir: SimulatedWeir, rate: float, size: float, *, connections: int = 1) -> None:
        """Connect clients that want to send `rate` bytes per second together, in requests of `size`."""
        pause_ms = 1000 * size * connections / rate
        for connection in range(connections):
            first_ms = self.now_ms + pause_ms * connection / connections
            self.at(first_ms, lambda: self._request(weir, size, pause_ms))

    def _request(self, weir: SimulatedWeir, size: float, pause_ms: float) -> None:
        if not weir.alive:
            return
        self.used.append((self.now_ms, size))
        wait_ms = weir.charge(size, self.now_ms)
        spread_ms = pause_ms * self.random.uniform(0.9, 1.1)
        next_ms = self._at_ms + max(wait_ms, spread_ms)
        self.at(max(next_ms, weir.paused_until_ms), lambda: self._request(weir, size, pause_ms))


def world(weirs: int, conditions: Conditions, seed: int) -> World:
    """A world in which these Weirs have heard each other, and no client has come."""
    made = World(conditions, Random(seed))
    for number in range(weirs):
        made.start(f"weir-{number}")
    made.run(QUIET_MS + 2 * conditions.delay_ms)
    return made


def first_window(
    weirs: int, demand: float, size: float, conditions: Conditions, seed: int = 1
) -> list[float]:
    """Return the bytes that clients with this demand (a multiple of the limit) have used until each `STEP_MS`
    of their first window.
    """
    made = world(weirs, conditions, seed)
    began_ms = made.now_ms
    for weir in made.weirs:
        made.client(weir, demand * LIMIT / weirs, size)
    made.run(began_ms + 1000 * WINDOW_S)
    totals, total, requests = [], 0.0, iter(made.used)
    request = next(requests, None)
    for until_ms in range(began_ms, began_ms + 1000 * WINDOW_S, STEP_MS):
        while request is not None and request[0] < until_ms:
            total += request[1]
            request = next(requests, None)
        totals.append(total)
    return totals


def excess(weirs: int, demand: float, size: float, conditions: Conditions) -> float:
    """Return the largest number of bytes that clients have used at several Weirs by any time of the first
    window beyond those at a single Weir, as a share of a window's bytes.
    """
    found = first_window(weirs, demand, size, conditions)
    single = first_window(1, demand, size, Conditions())
    return max(several - one for several, one in zip(found, single, strict=True)) / (LIMIT * WINDOW_S)


def bound(weirs: int, demand: float, delay_ms: int, size: float = SIZE) -> float:
    """Return the derived maximum of the excess, as a share of a window. A look comes up to `LOOK_MS` late,
    and each Weir forwards the request that exceeds the limit.
    """
    late_s = (delay_ms + PAUSE_MS + LOOK_MS) / 1000
    unknown = (weirs - 1) / weirs * (EPSILON * LIMIT * WINDOW_S + demand * LIMIT * late_s)
    return (unknown + weirs * size) / (LIMIT * WINDOW_S)


def greedy_rate(weirs: int, connections: int, conditions: Conditions, seed: int = 1) -> float:
    """Return the steady rate of clients that send as fast as they may, `connections` at each Weir."""
    made = world(weirs, conditions, seed)
    for weir in made.weirs:
        made.client(weir, 25 * LIMIT, 20_000, connections=connections)
    return steady_rate(made)


def steady_rate(made: World) -> float:
    """Run for 81 s from now on; return the rate over a minute as a share of the limit. Greedy clients use up
    a window at once, so it is a mean over beginnings within a window.
    """
    began_ms = made.now_ms
    made.run(began_ms + 81_000)
    begins_ms = range(began_ms + 15_000, began_ms + 26_000, 500)
    return sum(rate(made, begin_ms, begin_ms + 55_000) for begin_ms in begins_ms) / len(begins_ms)


def rate(made: World, from_ms: int, until_ms: int) -> float:
    """Return the bytes per second in this time, as a share of the limit."""
    total = sum(size for at_ms, size in made.used if from_ms <= at_ms < until_ms)
    return total / (until_ms - from_ms) * 1000 / LIMIT
