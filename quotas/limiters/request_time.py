"""RequestBudget: Kafka's limiter of request time (KIP-124).

A charge is in percent of a thread's second, as in Kafka: 100 is one thread that is busy for one second. The
estimate behind it is `quotas.costs.cost`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotas.limiters.budgets import Budget
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT

if TYPE_CHECKING:
    from quotas.table.entities import Tags

US_PER_PERCENT: Final = 10_000.0
"""Number of microseconds in one percent of a second."""
API_KEYS_OWN: Final = 128
"""Number of API keys with an entry of their own in `RequestBudget.by_api`. All other keys share one entry:
Kafka uses about a hundred keys, and a client can send 65,536.
"""
OTHER_APIS: Final = -1
"""Key of the shared entry in `RequestBudget.by_api`."""


class RequestBudget(Budget):
    """Budget of request time for the clients that share `tags`, in percent of one thread."""

    __slots__ = ("_pending", "_quiet_from_ms", "_quiet_until_ms", "_room", "by_api", "near")

    def __init__(
        self,
        tags: Tags,
        limit: float,
        now_ms: int,
        *,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        is_shadow: bool = False,
    ) -> None:
        """See `Budget`. Throttle times are at most one window long, as in Kafka
        (ClientRequestQuotaManager).
        """
        super().__init__(
            tags,
            limit,
            now_ms,
            num_samples=num_samples,
            window_s=window_s,
            throttle_ms_max=1000 * window_s,
            is_shadow=is_shadow,
        )
        self.by_api: dict[int, float] = {}
        """API key → percent charged ever; `OTHER_APIS` for keys from `API_KEYS_OWN` on."""
        self._pending = 0.0
        """Percent charged in the current quiet time but not yet recorded in `_rate`."""
        self._room = -1.0
        """Percent that may be pending while the rate surely stays below half of the limit; below 0 if the
        rate must be computed at each charge.
        """
        self._quiet_from_ms = self._quiet_until_ms = now_ms
        self.near = False
        """True if more than half of the limit was in use at the last charge. Connections then have one
        request in flight, as at a broker, so that the limit is not exceeded by many requests at once.
        """

    def charge_api(self, api_key: int, percent: float, now_ms: int) -> int:
        """Charge a request of this API; return the throttle time (ms) of its client, 0 for none."""
        try:
            self.by_api[api_key] += percent
        except KeyError:
            self._first_of(api_key, percent)
        self.charged += percent
        pending = self._pending + percent
        if pending <= self._room and self._quiet_from_ms <= now_ms < self._quiet_until_ms:
            self.charged_ms, self._pending = now_ms, pending
            return 0
        return self._charge_in_full(percent, now_ms)

    def _charge_in_full(self, percent: float, now_ms: int) -> int:
        """Record pending charges, then do as `Budget.charge` does."""
        self._record_pending()
        self.charged_ms = now_ms
        rate = self._rate.add(percent, now_ms)
        self.near = rate + rate > self.limit
        if self.near:
            self._room = -1.0
            return 0 if rate <= self.limit else self._exceeded(rate, now_ms)
        self._quiet_from_ms, self._quiet_until_ms = self._rate.quiet_from_ms, self._rate.quiet_until_ms
        used = rate * self._rate.window_ms(now_ms)
        self._room = (self.limit / 2 * self._rate.span_ms - used) / 1000
        return 0

    def charge(self, value: float, now_ms: int) -> int:
        """Charge request time without an API; see `Budget.charge`."""
        self._record_pending()
        self._room = -1.0
        return super().charge(value, now_ms)

    def absorb(self, units: float, now_ms: int) -> None:
        """Record request time that was charged elsewhere; see `Budget.absorb`."""
        self._record_pending()
        self._room = -1.0
        super().absorb(units, now_ms)

    def set_limit(self, limit: float) -> None:
        """Replace the limit; see `Budget.set_limit`."""
        super().set_limit(limit)
        self._room = -1.0

    def inherit(self, other: Budget) -> None:
        """Begin with the charges of `other`; see `Budget.inherit`."""
        if isinstance(other, RequestBudget):
            other._record_pending()
        super().inherit(other)
        self._pending, self._room = 0.0, -1.0

    def rate(self, now_ms: int) -> float:
        """Return the current rate (percent of one thread), for metrics."""
        self._record_pending()
        return super().rate(now_ms)

    def _record_pending(self) -> None:
        if self._pending:
            self._rate.record(self._pending, self.charged_ms)
            self._room, self._pending = self._room - self._pending, 0.0

    def _first_of(self, api_key: int, percent: float) -> None:
        """Add the first charge of an API to `by_api`, or a charge of the other APIs."""
        entry = api_key if 0 <= api_key < API_KEYS_OWN else OTHER_APIS
        self.by_api[entry] = self.by_api.get(entry, 0.0) + percent
