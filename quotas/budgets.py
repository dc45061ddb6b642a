"""Budgets: what those who share a quota have used lately, against what they may use.

A charge says how long whoever caused it must wait. `client_quotas` says whose budget it goes to; mutations
have budgets of their own kind (`mutations`), and connections too (`connections`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from quotas.mutations import MutationBudget
from quotas.rate import Rate
from quotas.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.throttle import INT32_MAX, fetch_cap, throttle_ms

if TYPE_CHECKING:
    from quotas.entities import Tags

UNLIMITED = math.inf


class Budget:
    """What those who share `tags` have used lately, and may use; one object for all their connections.

    Nobody slows down for a budget of a shadow entry: it is exceeded again and again where an enforced one is
    exceeded once. Its `throttle_ms_total` is the time in which somebody would have been waiting: where waits
    overlap, it counts once.
    """

    __slots__ = (
        "_is_shadow",
        "_num_samples",
        "_rate",
        "_throttle_ms_max",
        "_window_s",
        "charged",
        "charged_ms",
        "fetch_max_bytes",
        "limit",
        "tags",
        "throttle_ms_total",
        "throttled",
        "throttled_until_ms",
    )

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
        """Begin at `now_ms` with nothing used."""
        self.tags = tags
        self._is_shadow = is_shadow
        self.charged: float = 0.0
        """Everything ever charged."""
        self.throttled = 0
        """Number of requests that were answered with a throttle time, charged or not."""
        self.throttle_ms_total = 0
        """The sum of these throttle times."""
        self.throttled_until_ms = now_ms
        """When the last of them to end will have ended: at the earliest then the rate is within the limit."""
        self.charged_ms = now_ms
        """When the last charge was made, or the budget."""
        self._rate = Rate(num_samples, 1000 * window_s)
        self._num_samples = num_samples
        self._window_s = window_s
        self._throttle_ms_max = throttle_ms_max
        self.set_limit(limit)

    def set_limit(self, limit: float) -> None:
        """Replace the limit (units per second; `UNLIMITED` for none). What was used stays."""
        self.limit = limit
        self.fetch_max_bytes = fetch_cap(limit, self._num_samples, self._window_s)

    def charge(self, value: float, now_ms: int) -> int:
        """Record `value`; return how many ms whoever caused it must wait, 0 if within the limit."""
        self.charged += value
        self.charged_ms = now_ms
        rate = self._rate.add(value, now_ms)
        return 0 if rate <= self.limit else self._exceeded(rate, now_ms)

    def charge_untold(self, value: float, now_ms: int) -> None:
        """As `charge`, for a response that can tell no throttle time: nobody waits before it was told."""
        counted = self.throttled, self.throttle_ms_total
        self.charge(value, now_ms)
        self.throttled, self.throttle_ms_total = counted

    def _exceeded(self, rate: float, now_ms: int) -> int:
        """The rate is above the limit: return how many ms whoever caused that must wait."""
        wait_ms = throttle_ms(rate, self.limit, self._rate.window_ms(now_ms), self._throttle_ms_max)
        if wait_ms:
            until_ms = now_ms + wait_ms
            waited_from_ms = max(self.throttled_until_ms, now_ms) if self._is_shadow else now_ms
            self.throttled += 1
            self.throttle_ms_total += max(until_ms - waited_from_ms, 0)
            self.throttled_until_ms = max(self.throttled_until_ms, until_ms)
        return wait_ms

    def tell_rest(self, now_ms: int) -> int:
        """Count a request that is told the rest of the throttle time and is not charged; return that rest
        (ms), 0 if the throttle time is over.
        """
        rest_ms = max(self.throttled_until_ms - now_ms, 0)
        if rest_ms:
            self.throttled += 1
            self.throttle_ms_total += rest_ms
        return rest_ms

    def take_over(self, other: Budget) -> None:
        """Begin with what `other`, of the same windows, has used. Its counts and its waits stay its own."""
        self._rate.take_over(other._rate)

    def at_rest(self, now_ms: int) -> bool:
        """Whether nothing that was charged counts any more, and nobody was told to wait longer than until
        now.
        """
        lifetime_ms = 1000 * self._num_samples * self._window_s
        return self.charged_ms + lifetime_ms <= now_ms and self.throttled_until_ms <= now_ms

    def rate(self, now_ms: int) -> float:
        """Units per second now. Changes nothing: for metrics."""
        return self._rate.peek(now_ms)


class Account(Protocol):
    """What `ClientQuotas` needs of a budget, whatever it counts: see `Budget`."""

    tags: Tags
    charged: float
    charged_ms: int
    throttled: int
    throttle_ms_total: int

    def set_limit(self, limit: float) -> None: ...
    def at_rest(self, now_ms: int) -> bool: ...


@dataclass(slots=True)
class Totals:
    """What several budgets have counted, summed."""

    charged: float = 0
    throttled: int = 0
    throttle_ms: int = 0
    refused: int = 0
    """Topics of mutation budgets; nothing else is refused."""

    def add(self, budget: Account) -> None:
        """Count one more budget."""
        self.charged += budget.charged
        self.throttled += budget.throttled
        self.throttle_ms += budget.throttle_ms_total
        if isinstance(budget, MutationBudget):
            self.refused += budget.refused
