"""A quota book whose totals never shrink: what expired budgets had counted is kept, summed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from proxy.quota_book import QuotaBook
from quotas import BrokerQuotas, Budget, ClientQuotas, QuotaTable
from quotas.budgets import IDLE_MS_MAX


class Pot(NamedTuple):
    """What totals are kept for: one kind of quota at one broker."""

    node_id: int | None
    quota: str


@dataclass(slots=True)
class Total:
    """Sums over budgets of one pot."""

    charged: float = 0.0
    throttled: int = 0
    throttle_ms: int = 0

    def add(self, budget: Budget) -> None:
        """Count one more budget."""
        self.charged += budget.charged
        self.throttled += budget.throttled
        self.throttle_ms += budget.throttle_ms_total


class LedgerBook(QuotaBook):
    """The quotas in force, with a memory for what expired budgets had counted."""

    def __init__(self, table: QuotaTable) -> None:
        super().__init__(table)
        self.generation = 0
        """How often another table came into force."""
        self._forgotten: dict[Pot, Total] = {}
        self._next_expiry_ms = -math.inf

    def update(self, table: QuotaTable) -> None:
        """Put another table in force."""
        super().update(table)
        self.generation += 1

    def pots(self) -> Iterator[tuple[Pot, ClientQuotas]]:
        """Every kind of quota that is counted in bytes, at every broker."""
        for node_id, quotas in self.brokers.items():
            for kind in _byte_rates(quotas):
                yield Pot(node_id, kind.key.value), kind

    def forgotten(self, pot: Pot) -> Total:
        """Return a copy of what its expired budgets had counted."""
        kept = self._forgotten.get(pot)
        return Total() if kept is None else Total(kept.charged, kept.throttled, kept.throttle_ms)

    def expire(self, now_ms: int) -> int:
        """Note down the budgets that are about to be forgotten, then forget them; return how many."""
        if now_ms >= self._next_expiry_ms:
            self._note_idle(now_ms - IDLE_MS_MAX)
        return super().expire(now_ms)

    def _note_idle(self, last_ms: int) -> None:
        """Add up the budgets last charged at `last_ms` or before; the next is idle an hour later at the
        earliest.
        """
        oldest_ms = last_ms + IDLE_MS_MAX
        for pot, kind in self.pots():
            for budget in kind:
                if budget.charged_ms <= last_ms:
                    self._forgotten.setdefault(pot, Total()).add(budget)
                else:
                    oldest_ms = min(oldest_ms, budget.charged_ms)
        self._next_expiry_ms = oldest_ms + IDLE_MS_MAX


def _byte_rates(quotas: BrokerQuotas) -> tuple[ClientQuotas, ...]:
    """A quota of another unit gets metrics of its own."""
    return quotas.produce, quotas.fetch
