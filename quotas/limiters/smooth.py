"""SmoothBudget: Weir's own limiter of byte rates, with short, even throttle times (`pacing = "smooth"`).

A charge is a debt, which is paid off at the limit. A client in debt waits until the debt is paid:

    debt = max(debt - limit · elapsed, -limit · credit) + units
    wait = debt / limit, rounded up; 0 if the debt is not above 0

Up to `CREDIT_MS` of unused time are kept as credit. So a client reaches its limit in spite of the time of
round trips, waits that are rounded up, and requests that come late. Longer unused time is lost.

>>> from weir.quotas.table.entities import Tags
>>> budget = SmoothBudget(Tags("", "app"), limit=1_000_000, now_ms=0)
>>> budget.charge(300_000, now_ms=0)  # 100 ms are covered by the credit
200
>>> budget.charge(300_000, now_ms=230), budget.charge(300_000, now_ms=500)  # the client came 30 ms late twice
(270, 300)

Bounds. Within a time t, clients can use at most limit · (t + credit) and one request per connection more,
because a connection waits after its request was charged. No wait is longer than the limit needs for one
request of each connection.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from weir.quotas.limiters.budgets import HAIR_MS, Budget
from weir.quotas.limiters.limiter import UNLIMITED
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.throttle import INT32_MAX
from weir.quotas.table.options import Pacing

if TYPE_CHECKING:
    from weir.quotas.table.entities import Tags

CREDIT_MS: Final = 100
"""Maximum unused time (ms) kept as credit: 1 % of ten seconds."""
FETCH_MS: Final = 200
"""Time (ms) within which the limit pays for the largest response that a fetch may ask for: 2 % of ten
seconds. A broker fills a response up with the beginning of a batch, and the client fetches the whole batch
again; with smaller responses, a larger share of the quota would be wasted in this way.
"""
FETCH_BYTES_MIN: Final = 4096
"""Number of bytes that a fetch may always ask for. A lower number would not help, because a broker sends at
least one batch of any size.
"""
_PER_MS_MAX: Final = 1e30
"""Number of units per ms by which a debt shrinks if there is no limit. Finite, because infinity times 0 ms
would be NaN.
"""


def paced(budget: Budget, pacing: Pacing) -> Budget:
    """Return `budget` if it is of the class for this `pacing` already; else a new budget of that class with
    the limit and usage of `budget`.
    """
    kind = KINDS[pacing]
    return budget if type(budget) is kind else budget.becomes(kind)


class SmoothBudget(Budget):
    """Debt of the clients that share `tags`, in units. The rate of the base class is for metrics only.

    A shadow budget drops the unpaid debt at the next charge. Its clients do not wait, so otherwise the debt
    would grow without end.
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
        """Begin at `now_ms` with the full credit. `limit` is in units/s; `throttle_ms_max` is the maximum
        throttle time (ms). `num_samples` and `window_s` only change the rate that metrics show.
        """
        self._debt = -math.inf
        """Number of units that clients owed at `_debt_ms`. A negative number is credit for unused time, at
        most `_credit` units.
        """
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
        """Replace the limit (units per second). The debt stays; it is paid off at the new limit, from the
        time of the last charge on.
        """
        super().set_limit(limit)
        self._per_ms = min(limit / 1000.0, _PER_MS_MAX)
        self._credit = CREDIT_MS * self._per_ms
        if limit != UNLIMITED:
            self.fetch_max_bytes = min(max(int(FETCH_MS * self._per_ms), FETCH_BYTES_MIN), INT32_MAX)

    def charge(self, value: float, now_ms: int) -> int:
        """Charge `value` units; return the throttle time (ms), 0 if the debt is not above 0."""
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

    def charge_in_turn(self, value: float, now_ms: int) -> int:
        """Charge `value` units of a fetch response, like `charge`: a debt is a line."""
        return self.charge(value, now_ms)

    def _owing(self, debt: float, now_ms: int) -> int:
        """Compute and count the throttle time of a client that owes `debt` units; return it (ms). Return 0 if
        there is no limit.
        """
        if self.limit == UNLIMITED:
            return 0
        owed_ms = debt / self._per_ms
        if self.floors is not None:
            # Members below their floors may leave nothing to pay the debt with. It then stops at one window's
            # worth, so that the others need not pay for hours once they could.
            owed_ms = min(owed_ms, self._rate.span_ms)
            self._debt = owed_ms * self._per_ms
            left_per_ms = self._left(self.floors, now_ms) / 1000
            owed_ms = min(self._debt / left_per_ms, self._rate.span_ms)
        wait_ms = math.ceil(min(owed_ms, self._throttle_ms_max) - HAIR_MS)
        return self._told(wait_ms, now_ms) if wait_ms > 0 else 0

    def _present_wait_ms(self, now_ms: int) -> int:
        """Return the time (ms) in which the present limit pays the debt."""
        debt = self._debt - self._per_ms * (now_ms - self._debt_ms)
        return math.ceil(min(debt / self._per_ms, self._throttle_ms_max)) if debt > 0 else 0

    def absorb(self, units: float, now_ms: int) -> None:
        """Add to the debt the units that another process or limiter has charged under the same limit. They
        lengthen the throttle time of the next charge here.
        """
        debt = max(self._debt - self._per_ms * (now_ms - self._debt_ms), -self._credit)
        self._debt, self._debt_ms = debt + units, now_ms
        super().absorb(units, now_ms)

    @property
    def forgets_excess(self) -> bool:
        """False: a debt stays until it is paid."""
        return False

    @property
    def restored_max(self) -> float:
        """Number of units after which clients wait for one window."""
        return self._credit + self._per_ms * self._rate.span_ms

    def counting(self, now_ms: int) -> list[tuple[int, float]]:
        """Return (time in ms, units) of one charge that explains the debt: the missing credit."""
        units = self._debt - self._per_ms * (now_ms - self._debt_ms) + self._credit
        return [(now_ms, units)] if units > 0 else []

    def inherit(self, other: Budget) -> None:
        """Begin with the samples of `other`, which must have the same `num_samples` and `window_s`, and with
        its debt if `other` is a SmoothBudget. Counters and throttle times are not copied.
        """
        super().inherit(other)
        if isinstance(other, SmoothBudget):
            self._debt, self._debt_ms = other._debt, other._debt_ms


KINDS: Final = {Pacing.KAFKA: Budget, Pacing.SMOOTH: SmoothBudget}
"""Pacing → class of its limiters."""
