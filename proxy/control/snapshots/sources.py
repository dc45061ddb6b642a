"""The objects of a process from which snapshots are read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from weir.proxy.control.peers import ReadPeers
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.quotas.storage import StorageBudgets
from weir.quotas.topic_counts import TopicCounts


@dataclass(frozen=True, slots=True)
class SnapshotSources:
    """The objects from which records of entities and connections are read."""

    registry: QuotaRegistry
    read_peers: ReadPeers
    """Coroutine function that returns the peers of entities."""
    now_ms: Callable[[], int]
    """Function that returns the time (ms) on the clock of budgets and connections."""
    wall_clock_s: Callable[[], float] = time.time
    counts: TopicCounts | None = None
    """Numbers of topics by prefix; None in workers."""
    storage: StorageBudgets | None = None
    """Storage budgets; None in workers."""

    def unix_ms(self, at_ms: int | None = None) -> int:
        """Return the Unix time (ms) of a moment on the clock of budgets; of the present without a moment."""
        unix_ms = int(self.wall_clock_s() * 1000)
        return unix_ms if at_ms is None else unix_ms + at_ms - self.now_ms()
