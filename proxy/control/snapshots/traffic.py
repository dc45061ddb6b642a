"""Rates of requests and bytes: differences between two readings of the counters.

A task reads every `PERIOD_S`, and a request of the admin API reads again if the last reading is older than
`FRESH_MS`. So rates cover one to six seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from weir.protocol.api import ApiKey
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.in_flight import CHARGED
from weir.proxy.connection.state import THROTTLED
from weir.proxy.connection.waits import NONE, broker_wait
from weir.proxy.control.events.health import Condition, problem
from weir.proxy.control.snapshots.gauges import Gauges
from weir.proxy.counters import Counters
from weir.quotas import QuotaKey

PERIOD_S: Final = 5.0
FRESH_MS: Final = 1000
SILENT_MS: Final = 20_000
"""Time (ms) without a byte from a broker, while requests wait for it, after which the broker is a problem.
Clients close after `request.timeout.ms` (30 s), and then no request waits.
"""
_PATIENT: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Requests that wait for other members of a group, so that a broker may rightly be silent."""


@dataclass(slots=True)
class TrafficReading:
    """Counters at one time."""

    at_ms: int
    requests: int = 0
    from_clients: Counter[int | None] = field(default_factory=Counter)
    """Number of bytes received from clients since the start, by node id of the broker."""
    from_brokers: Counter[int | None] = field(default_factory=Counter)
    connections: Counter[int | None] = field(default_factory=Counter)
    """Number of open connections, by node id of the broker."""
    waiting: Counter[int | None] = field(default_factory=Counter)
    """Number of connections that wait for a response of the broker, by node id."""
    throttled: Counter[QuotaKey | None] = field(default_factory=Counter)
    """Number of connections that wait for the end of a throttle time, by quota; None for replication."""


class TrafficRates:
    """The two latest readings of the counters."""

    def __init__(self, counters: Counters, gauges: Gauges) -> None:
        """Begin without readings. `counters` and `gauges` are sums over all workers."""
        self._counters = counters
        self._gauges = gauges
        self._readings: deque[TrafficReading] = deque(maxlen=2)
        self._silent_ms: dict[int | None, int] = {}
        """Time (ms) of the latest reading before which each silent broker has sent something."""

    def look(self, now_ms: int) -> None:
        """Read the counters, unless they were read less than `FRESH_MS` ago."""
        if self._is_fresh(now_ms):
            return
        counters, gauges = self._counters, self._gauges
        reading = TrafficReading(
            now_ms,
            counters.requests.total(),
            Counter(counters.bytes_from_clients),
            Counter(counters.bytes_from_brokers),
            Counter(gauges.connections),
            Counter(gauges.waiting),
            Counter(gauges.throttled),
        )
        self._note_silence(reading)
        self._readings.append(reading)

    def _note_silence(self, reading: TrafficReading) -> None:
        before = self.latest
        silent = [
            node
            for node, waiting in reading.waiting.items()
            if waiting and before.waiting[node] and reading.from_brokers[node] == before.from_brokers[node]
        ]
        self._silent_ms = {node: self._silent_ms.get(node, before.at_ms) for node in silent}

    def conditions(self, now_ms: int) -> Iterator[Condition]:
        """Yield a problem for each broker that sends nothing, though requests wait: it may hang."""
        for node, since_ms in self._silent_ms.items():
            if node is not None and now_ms - since_ms >= SILENT_MS:
                waiting = self.latest.waiting[node]
                yield problem(
                    f"broker_silent {node}",
                    f"Broker {node} has sent nothing for {SILENT_MS // 1000} s or longer, though requests of "
                    f"{waiting} connection{'' if waiting == 1 else 's'} wait.",
                    "The broker accepts connections and may hang: look at its log and its threads.",
                    logged=True,
                )

    def _is_fresh(self, now_ms: int) -> bool:
        return bool(self._readings) and now_ms - self._readings[-1].at_ms < FRESH_MS

    @property
    def latest(self) -> TrafficReading:
        """The latest reading; one without counts before the first."""
        return self._readings[-1] if self._readings else TrafficReading(0)

    @property
    def requests_per_s(self) -> float:
        """Number of requests per second."""
        return self._per_s(lambda reading: reading.requests)

    def in_bytes_per_s(self, *nodes: int | None) -> float:
        """Return the rate of bytes from the clients of these brokers; of all brokers without `nodes`."""
        return self._per_s(lambda reading: _sum(reading.from_clients, nodes))

    def out_bytes_per_s(self, *nodes: int | None) -> float:
        """Return the rate of bytes from these brokers; from all brokers without `nodes`."""
        return self._per_s(lambda reading: _sum(reading.from_brokers, nodes))

    def _per_s(self, count: Callable[[TrafficReading], int]) -> float:
        if len(self._readings) < 2:
            return 0.0
        before, after = self._readings
        return round(max(count(after) - count(before), 0) * 1000 / (after.at_ms - before.at_ms), 2)


def count_throttled(connection: Connection, now_ms: int, counts: Counter[QuotaKey | None]) -> None:
    """Count the connection for its quota, if it waits for the end of a throttle time."""
    if connection.state == THROTTLED and connection.throttled_until_ms > now_ms:
        counts[connection.throttled_by] += 1


def waits_for_broker(connection: Connection, now_ms: int) -> bool:
    """Return True if the connection's oldest request is one that the broker should answer soon."""
    in_flight = connection.in_flight
    return (
        bool(in_flight)
        and in_flight[0].state <= CHARGED
        and in_flight[0].plan.api_key not in _PATIENT
        and broker_wait(connection, now_ms) == NONE
    )


def _sum(counter: Counter[int | None], nodes: tuple[int | None, ...]) -> int:
    return sum(counter[node] for node in nodes) if nodes else counter.total()
