"""RequestBudget: Kafka's limiter of request time (KIP-124).

A charge is in percent of a thread's second, as in Kafka: 100 is one thread that is busy for one second. The
estimate behind it is `quotas.costs.cost`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weir.quotas.table.entities import Tags

US_PER_PERCENT: Final = 10_000.0
"""Number of microseconds of a thread in one unit of a charge: one percent of a second."""
API_KEYS_OWN: Final = 128
"""Number of API keys with an entry of their own in `RequestBudget.by_api`. All other keys share one entry:
Kafka uses about a hundred keys, and a client can send 65,536.
"""
OTHER_APIS: Final = -1
"""Key of the shared entry in `RequestBudget.by_api`."""


class RequestBudget(Budget):
    """Budget of request time for the clients that share `tags`, in percent of one thread."""

    __slots__ = (
        "_pending",
        "_quiet_from_ms",
        "_quiet_until_ms",
        "_reported_by_api",
        "_room",
        "by_api",
        "near",
    )

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
        """Begin at `now_ms` without usage. `limit` is in percent of one thread; `num_samples` and `window_s`
        are Kafka's `quota.window.num` and `quota.window.size.seconds`. Throttle times are at most one window
        (`window_s`) long, as in Kafka (ClientRequestQuotaManager).
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
        """API key → request time (percent-seconds) charged since this budget was created. API keys from
        `API_KEYS_OWN` on share the entry `OTHER_APIS`.
        """
        self._reported_by_api: dict[int, float] = {}
        """Value of `by_api` at the previous call of `delta_by_api`."""
        self._pending = 0.0
        """Request time (percent-seconds) that was charged, but is not yet recorded in the samples of `_rate`.
        Charges are added up here while the rate is surely below half of the limit.
        """
        self._room = -1.0
        """Maximum of `_pending` (charges, in percent-seconds, that are not yet recorded in the samples) at
        which the rate is surely below half of the limit; below 0 if each charge must compute the rate.
        """
        self._quiet_from_ms = self._quiet_until_ms = now_ms
        self.near = False
        """True if the last charge found more than half of the limit in use. Each connection of the clients
        then has at most one request in flight, as at a broker, because several at once could exceed the limit
        by far.
        """

    def charge_api(self, api_key: int, percent: float, now_ms: int) -> int:
        """Charge the request time `percent` (percent-seconds) of a request of this API; return the throttle
        time (ms), 0 if the usage is within the limit.
        """
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
        """Record the pending charges and this charge in the samples, and compute the rate. Return the
        throttle time (ms), 0 if the rate is within the limit.
        """
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
        """Charge request time (percent-seconds) without an API, so that `by_api` does not count it. Return
        the throttle time (ms), 0 if the usage is within the limit.
        """
        self._record_pending()
        self._room = -1.0
        return super().charge(value, now_ms)

    def absorb(self, units: float, now_ms: int) -> None:
        """Record request time (percent-seconds) that another process or limiter has charged under the same
        limit. It lengthens the throttle time of the next charge here.
        """
        self._record_pending()
        self._room = -1.0
        super().absorb(units, now_ms)

    def delta_by_api(self) -> dict[int, float]:
        """Return the request time (percent-seconds) charged since the previous call, of each API that was
        charged.
        """
        before, now = self._reported_by_api, self.by_api
        found = {key: time - before.get(key, 0.0) for key, time in now.items() if time != before.get(key)}
        self._reported_by_api = now.copy()
        return found

    def count_by_api(self, times: Mapping[int, float]) -> None:
        """Add request time by API that another process has charged (`delta_by_api`); it is not charged."""
        for key, percent in times.items():
            self._first_of(key, percent)

    def counting(self, now_ms: int) -> list[tuple[int, float]]:
        """Return (time in ms, percent-seconds) of the charges that still count."""
        self._record_pending()
        return super().counting(now_ms)

    def set_limit(self, limit: float) -> None:
        """Replace the limit (percent of one thread, `UNLIMITED` for no limit). The usage stays."""
        super().set_limit(limit)
        self._room = -1.0

    def inherit(self, other: Budget) -> None:
        """Begin with the samples of `other`, which must have the same `num_samples` and `window_s`. Counters
        and throttle times are not copied.
        """
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
        """Add a charge to the entry of its API in `by_api`, which may not exist yet, or to the entry
        `OTHER_APIS`.
        """
        entry = api_key if 0 <= api_key < API_KEYS_OWN else OTHER_APIS
        self.by_api[entry] = self.by_api.get(entry, 0.0) + percent
