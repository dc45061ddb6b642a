"""SmoothBudget: holds a byte rate evenly, with short waits; Weir's own, not Kafka's (`pacing = "smooth"`).

A charge is a debt, which is paid off at the limit. A client in debt waits until the debt is paid:

    debt = max(debt - limit · elapsed, -limit · credit) + units
    wait = debt / limit, rounded up, 0 if nothing is owed

Up to `CREDIT_MS` of unused time are kept as credit: the time of a round trip costs no rate, and neither does
a wait that was rounded up, nor a client that comes late. Nothing else is remembered.

>>> from quotas.table.entities import Tags
>>> budget = SmoothBudget(Tags("", "app"), limit=1_000_000, now_ms=0)
>>> budget.charge(300_000, now_ms=0)  # 100 ms are covered by the credit
200
>>> budget.charge(300_000, now_ms=230), budget.charge(300_000, now_ms=500)  # the client came 30 ms late twice
(270, 300)

Bounds. Between two moments t apart, a limiter lets limit · (t + credit) pass, and one request of each
connection: those are charged first and wait then. Nobody waits longer than the limit needs for one request of
each connection.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from quotas.limiters.budgets import Budget
from quotas.limiters.limiter import UNLIMITED
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.limiters.throttle import INT32_MAX
from quotas.table.options import Pacing

if TYPE_CHECKING:
    from quotas.table.entities import Tags

CREDIT_MS: Final = 100
"""Unused time (ms) that is not lost: 1 % of ten seconds."""
FETCH_MS: Final = 200
"""Time (ms) within which the limit pays for the largest response that a fetch may ask for: 2 % of ten
seconds. A broker fills responses up with the beginning of a batch, which clients fetch again; smaller
responses would waste more of a quota.
"""
FETCH_BYTES_MIN: Final = 4096
"""A fetch may always ask for so many bytes; a broker sends one batch, however large, in any case."""
_HAIR_MS: Final = 1e-6
"""A wait (ms) that only rounding has made: nobody waits a whole ms for it."""
_PER_MS_MAX: Final = 1e30
"""Units per ms that a limiter without a limit pays off: finite, so that no time of it is NaN."""


def paced(budget: Budget, pacing: Pacing) -> Budget:
    """Return the budget if it is held so, else one in its place that is."""
    kind = KINDS[pacing]
    return budget if type(budget) is kind else budget.becomes(kind)


class SmoothBudget(Budget):
    """What those who share `tags` owe: see `Budget`, which also tells the rate, for metrics.

    A shadow budget forgets a debt that is still owed when the next charge comes: its clients do not wait, and
    the debt would grow without end.
    """

    __slots__ = ("_credit", "_debt", "_debt_ms", "_per_ms")

    def __init__(
        self,
        tags: Tags,
        limit: float,
        now_ms: int,
        *,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        throttle_ms_max: int = INT32_MAX,
        is_shadow: bool = False,
    ) -> None:
        """Begin at `now_ms` with the whole credit. The numbers are of the rate that metrics show."""
        self._debt = -math.inf
        """Units owed at `_debt_ms`; below 0 credit, of which `_credit` at most counts."""
        self._debt_ms = now_ms
        self._per_ms = 0.0
        self._credit = 0.0
        super().__init__(
            tags,
            limit,
            now_ms,
            num_samples=num_samples,
            window_s=window_s,
            throttle_ms_max=throttle_ms_max,
            is_shadow=is_shadow,
        )

    def set_limit(self, limit: float) -> None:
        """Replace the limit. What is owed stays owed, and is paid off at the new limit since the last
        charge.
        """
        super().set_limit(limit)
        self._per_ms = min(limit / 1000.0, _PER_MS_MAX)
        self._credit = CREDIT_MS * self._per_ms
        if limit != UNLIMITED:
            self.fetch_max_bytes = min(max(int(FETCH_MS * self._per_ms), FETCH_BYTES_MIN), INT32_MAX)

    def charge(self, value: float, now_ms: int) -> int:
        """Charge `value`; return the time (ms) that its sender must wait, 0 if nothing is owed."""
        self.charged += value
        self.charged_ms = now_ms
        self._rate.record(value, now_ms)
        debt = self._debt - self._per_ms * (now_ms - self._debt_ms)
        if debt < -self._credit:
            debt = -self._credit
        elif self._is_shadow and debt > 0:
            debt = 0.0
        self._debt = debt = debt + value
        self._debt_ms = now_ms
        return 0 if debt <= 0 else self._owing(debt, now_ms)

    def _owing(self, debt: float, now_ms: int) -> int:
        """Return the time (ms) that the sender of the last charge must wait until `debt` is paid."""
        if self.limit == UNLIMITED:
            return 0
        wait_ms = math.ceil(min(debt / self._per_ms, self._throttle_ms_max) - _HAIR_MS)
        return self._told(wait_ms, now_ms) if wait_ms > 0 else 0

    def absorb(self, units: float, now_ms: int) -> None:
        """Owe what was charged elsewhere; the next charge waits for it."""
        debt = max(self._debt - self._per_ms * (now_ms - self._debt_ms), -self._credit)
        self._debt, self._debt_ms = debt + units, now_ms
        super().absorb(units, now_ms)

    def inherit(self, other: Budget) -> None:
        """Begin with what `other` has used. Beyond waits, nothing is owed to another kind of limiter."""
        super().inherit(other)
        if isinstance(other, SmoothBudget):
            self._debt, self._debt_ms = other._debt, other._debt_ms


KINDS: Final = {Pacing.KAFKA: Budget, Pacing.SMOOTH: SmoothBudget}
"""Class of limiter by pacing."""
