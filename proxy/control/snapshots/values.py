"""The values of one budget, for metrics and for the records of the API."""

from __future__ import annotations

from typing import NamedTuple

from weir.proxy.control.snapshots.names import entry_name, shortened
from weir.proxy.control.snapshots.records import Where
from weir.quotas import MutationBudget, QuotaKey, QuotaTable, Tags
from weir.quotas.limiters.limiter import Limiter


class Values(NamedTuple):
    """The values of one budget at one time."""

    names: Tags
    """Names of the clients that share the budget, or of its topic or address, shortened."""
    broker: Where
    quota: QuotaKey
    entry: str
    """Entity of the quota entry that sets the limit, as text; empty if the entry was removed."""
    limit: float
    """Limit in the unit of the quota; infinite if the entry was removed."""
    rate: float
    """Current rate, in the unit of the quota: bytes/s, percent of a thread's time, partitions/s, or
    connections/s.
    """
    charged: float
    throttled: int
    """Number of requests (or connections) answered with a throttle time."""
    throttle_ms: int
    """Sum of the throttle times (ms)."""
    tokens: float = 0.0
    """Current balance (partitions) of a mutation budget; 0 for other budgets."""
    refused: int = 0
    """Number of topics in requests that were refused because a mutation budget was exhausted; 0 for other
    budgets.
    """


def read_values(
    table: QuotaTable, broker: Where, quota: QuotaKey, budget: Limiter, now_ms: int, *, shadow: bool
) -> Values:
    """Return the values of a budget. `table` is the quota table in force, which knows the budget's entry."""
    values = Values(
        Tags(*map(shortened, budget.tags)),
        broker,
        quota,
        entry_name(table, quota, budget.tags, shadow=shadow),
        budget.limit,
        budget.rate(now_ms),
        budget.charged,
        budget.throttled,
        budget.throttle_ms_total,
    )
    if isinstance(budget, MutationBudget):
        return values._replace(tokens=budget.tokens(now_ms), refused=budget.refused)
    return values
