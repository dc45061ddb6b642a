"""Throttled entities: how often each was throttled, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from weir.proxy.control.budgets import Counted
from weir.quotas import QuotaKey, Tags

SLICE: Final = 1000
"""Number of budgets, or of connections, read in one step. A step takes less than a millisecond; sockets are
served between steps.
"""
QUIET_MS: Final = 30_000
"""Time (ms) without a throttle after which the throttling of an entity has ended. It is longer than the
window of a rate, so that a client that stays at its quota is throttled once, for long.
"""

Who: TypeAlias = tuple[QuotaKey, Tags]
"""Quota of a budget, and the names of the clients that share the budget (`Tags`). All brokers' budgets of one
quota and name have the same `Who`.
"""


@dataclass(slots=True)
class Throttled:
    """Number and total time of throttles of one entity by one quota, summed over all brokers."""

    count: int = 0
    throttle_ms: int = 0
    refused: int = 0
    """Number of topics that mutation budgets have refused."""
    until_ms: int = 0
    """Time (ms) at which the latest throttle ends."""
    budgets: list[Counted] = field(default_factory=list)
    """Budgets that have counted these throttles, at most one per broker."""

    def note(self, budget: Counted) -> None:
        """Note that this budget has counted some of the throttles."""
        self.until_ms = max(self.until_ms, budget.throttled_until_ms)
        if budget not in self.budgets:
            self.budgets.append(budget)

    def add(self, other: Throttled) -> None:
        """Add later throttles of the same entity by the same quota."""
        self.count += other.count
        self.throttle_ms += other.throttle_ms
        self.refused += other.refused
        for budget in other.budgets:
            self.note(budget)

    @property
    def limit(self) -> float:
        """The present limit of the budget that was throttled for the first time last."""
        return self.budgets[-1].limit

    def rate(self, now_ms: int) -> float:
        """Return the current rate of the entity, at the broker with its highest rate."""
        return max(budget.rate(now_ms) for budget in self.budgets)
