"""The wait for a replication budget is as long as it must be, and not longer."""

from __future__ import annotations

import math

import pytest

from weir.quotas.replication.budgets import ReplicationBudget


@pytest.mark.parametrize("limit", [7, 1000, 1_000_000])
@pytest.mark.parametrize("charged", [0.5, 1.0, 1.5, 4.2])
@pytest.mark.parametrize("asked_at", [0, 300, 999, 1500])
def test_the_wait_for_a_replication_budget_ends_when_its_rate_allows_the_bytes(
    limit: int, charged: float, asked_at: int
) -> None:
    budget = ReplicationBudget(limit)
    budget.charge(math.ceil(charged * limit), now_ms=0)
    size = max(limit / 10, 1)
    # SimpleRate's window is the time since the only sample, but at least 1 s
    allowed_from_ms = (math.ceil(charged * limit) + size) / limit * 1000
    expected = 0 if allowed_from_ms <= max(asked_at, 1000) else math.ceil(allowed_from_ms - asked_at)
    assert budget.wait_ms(asked_at, size) == expected
