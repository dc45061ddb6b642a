"""Brokers of the cluster for which Weir has no listener, and which it therefore removes from responses.

Clients do not know these brokers, so partitions that they lead cannot be used: Weir is not ready, and the log
says so each minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final

import structlog

from weir.proxy.outage import Outage

log = structlog.get_logger("weir.addresses")

BROKERS_MAX: Final = 100
"""Maximum number of brokers that are kept here: a broker could tell any number of node ids."""
FORGET_S: Final = 900.0
"""Time (s) after which a broker counts as removed from the cluster if no response has named it. Clients ask
for the brokers every 5 minutes (`metadata.max.age.ms`).
"""


class LeftOutBrokers:
    """The brokers that are left out of responses now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without such brokers. `clock` returns the time (s)."""
        self._clock = clock
        self._outages: dict[int, Outage] = {}
        self._seen_s: dict[int, float] = {}

    def __bool__(self) -> bool:
        """Return True if a broker is left out now."""
        return bool(self._outages)

    def note(self, node_id: int, **details: object) -> None:
        """Record, for each response, that this broker was left out. The details are logged."""
        outage = self._outages.get(node_id)
        if outage is None:
            if len(self._outages) >= BROKERS_MAX:
                return
            broken = "broker removed from responses: clients cannot reach it"
            outage = Outage(log, broken, "broker no longer removed from responses", clock=self._clock)
            self._outages[node_id] = outage
        self._seen_s[node_id] = self._clock()
        outage.failed(node_id=node_id, **details)

    def end(self, node_id: int, because: str) -> None:
        """Record that this broker is not left out, and log it if the broker was."""
        outage = self._outages.pop(node_id, None)
        if outage is not None:
            del self._seen_s[node_id]
            outage.over(node_id=node_id, because=because)

    def keep(self, listed: Collection[int]) -> None:
        """Forget brokers that are not among the node ids of the cluster (`listed`)."""
        for node_id in self._outages.keys() - set(listed):
            self.end(node_id, "the cluster no longer has it")

    def node_ids(self) -> list[int]:
        """Return the node ids of the brokers that are left out now, in ascending order."""
        oldest_s = self._clock() - FORGET_S
        for node_id in [node_id for node_id, seen_s in self._seen_s.items() if seen_s < oldest_s]:
            self.end(node_id, "no response has named it any more")
        return sorted(self._outages)
