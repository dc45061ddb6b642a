"""Gauges: what is at present so at the connections of a worker, or of all workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from weir.quotas import QuotaKey


@dataclass(slots=True)
class Gauges:
    """Present numbers of one worker, or their sums over the latest reports of all workers."""

    connections: Counter[int | None] = field(default_factory=Counter)
    """Number of open connections, by node id of the broker."""
    waiting: Counter[int | None] = field(default_factory=Counter)
    """Number of connections that wait for a response of the broker, by node id."""
    throttled: Counter[QuotaKey | None] = field(default_factory=Counter)
    """Number of connections that wait for the end of a throttle time, by quota; None for replication."""
    buffered_bytes: int = 0
    """Number of bytes read and not sent yet."""
    reading_stopped: bool = False
    """True while any worker reads from no client because of `buffered_bytes_max`."""

    def sum_up(self, each: Collection[Gauges]) -> None:
        """Become the sum of these."""
        self.connections = sum((gauges.connections for gauges in each), Counter())
        self.waiting = sum((gauges.waiting for gauges in each), Counter())
        self.throttled = sum((gauges.throttled for gauges in each), Counter())
        self.buffered_bytes = sum(gauges.buffered_bytes for gauges in each)
        self.reading_stopped = any(gauges.reading_stopped for gauges in each)
