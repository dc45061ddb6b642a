"""Elsewhere: totals of the connections of worker processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from weir.quotas import QuotaKey


@dataclass(slots=True)
class Elsewhere:
    """Sums of the latest reports of all workers; all 0 without workers. `workers.questions` asks the workers
    for peers of entities and lists of connections.
    """

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
    reading_stops: int = 0
    """Number of times since the start that a worker has stopped to read from clients."""
    log_lines_lost: int = 0
    """Number of log lines of workers that could not be written, since the start."""
    requests: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Number of requests since the start, by (API key, version)."""
