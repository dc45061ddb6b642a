"""Clients that are told to wait, by what connections of theirs have used that are gone."""

from __future__ import annotations

from typing import Final

from tests.proxy.wire import quota_table
from weir.quotas import BrokerQuotas, Budget

RATE: Final = 1000
"""Bytes/s that the client may produce, and may fetch."""
BURST: Final = 10 * RATE
"""Bytes that a budget which has rested lets pass without a wait."""


def throttled_quotas(*, produce_s: int = 0, fetch_s: int = 0) -> BrokerQuotas:
    """Return quotas that the client "app" has exceeded at 0, so that it is told to wait for so long."""
    quotas = BrokerQuotas.create(quota_table(produce=RATE, fetch=RATE))
    for budget, seconds in ((produce_budget(quotas), produce_s), (fetch_budget(quotas), fetch_s)):
        if seconds:
            assert budget.charge(BURST + RATE * seconds, 0) == 1000 * seconds
    return quotas


def produce_budget(quotas: BrokerQuotas) -> Budget:
    budget = quotas.ledger("ANONYMOUS", "app", 0).produce
    assert isinstance(budget, Budget)
    return budget


def fetch_budget(quotas: BrokerQuotas) -> Budget:
    budget = quotas.ledger("ANONYMOUS", "app", 0).fetch
    assert isinstance(budget, Budget)
    return budget
