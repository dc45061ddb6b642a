"""Request time: what one request is estimated to cost its broker, and how that becomes a charge (KIP-124).

`request_costs` has the coefficients as files write them; a `Cost` is what they come down to for one API and
version, ready for the requests of a busy session. The estimate is in microseconds of one thread; a charge is
in percent of a thread's second, as in Kafka (100 is one thread, busy for one second).

A request that finds its broker idle costs more: `Cost.cold_us` has what, by the time since anything was last
forwarded to that broker. The time that a fetch waits for data, or a join for other members, is never in it: a
broker does not count it either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotas.limiters.budgets import Budget
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT

if TYPE_CHECKING:
    from quotas.entities import Tags
    from quotas.request_costs import ApiCost, ColdCost

US_PER_PERCENT: Final = 10_000.0
"""A hundredth of a second is one percent of it."""
_BYTES_PER_KB: Final = 1000.0
API_KEYS_OWN: Final = 128
"""API keys from here on, and negative ones, share one entry of `RequestBudget.by_api`: Kafka uses the first
hundred, and a client can name 65,536.
"""
OTHER_APIS: Final = -1
"""The key of that entry."""


class Cost:
    """What requests of one API and version cost at one kind of broker, in microseconds."""

    __slots__ = (
        "_cold_full_us",
        "_cold_max_us",
        "api",
        "cold_from_us",
        "us",
        "us_per_byte",
        "us_per_response_byte",
    )

    def __init__(self, api: ApiCost, cold: ColdCost, *, converted: bool = False) -> None:
        """`converted`: the broker has to change the format of what it responds with."""
        self.api = api
        """Of whose further coefficients what looks into requests makes use."""
        self.us = api.us
        self.us_per_byte = api.us_per_request_kb / _BYTES_PER_KB
        per_response_kb = api.us_per_response_kb + (api.us_per_converted_kb if converted else 0.0)
        self.us_per_response_byte = per_response_kb / _BYTES_PER_KB
        self._cold_max_us = cold.us
        self.cold_from_us = cold.from_us
        """For how long a broker must have been idle for that to matter."""
        self._cold_full_us = cold.full_us

    def cold_us(self, gap_us: float) -> float:
        """What a request costs in addition, the broker having been idle for `gap_us`."""
        if gap_us < self.cold_from_us:
            return 0.0
        return self._cold_max_us * min(1.0, gap_us / self._cold_full_us)

    def begun_us(self, length: int) -> float:
        """What is known of the cost when a request of this frame length is forwarded to a busy broker."""
        return self.us + self.us_per_byte * length


class RequestBudget(Budget):
    """The request time that those who share `tags` have used lately, and may use: percent of one thread."""

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
        """As `Budget`, but nobody waits for longer than one window."""
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
        """Everything ever charged, by API key; `OTHER_APIS` for those that are none of Kafka's."""
        self._pending = 0.0
        """Charged within the quiet time that `_rate` was last found in, but not recorded there yet."""
        self._room = -1.0
        """As much may be pending without coming near the limit: then the rate need not be looked at."""
        self._quiet_from_ms = self._quiet_until_ms = now_ms
        self.near = False
        """At the last charge more than half of the limit was in use: from here on one request is taken at a
        time, as brokers do, lest many are under way when the first is found to be too much.
        """

    def charge_api(self, api_key: int, percent: float, now_ms: int) -> int:
        """Charge what a request of this API has cost; return how many ms whoever caused it must wait."""
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
        """Do what `Budget.charge` does, what was left pending first."""
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
        """Charge request time of no API, as `Budget.charge`."""
        self._record_pending()
        self._room = -1.0
        return super().charge(value, now_ms)

    def absorb(self, units: float, now_ms: int) -> None:
        """Record request time that was charged elsewhere, as `Budget.absorb`."""
        self._record_pending()
        self._room = -1.0
        super().absorb(units, now_ms)

    def set_limit(self, limit: float) -> None:
        """Replace the limit, as `Budget.set_limit`."""
        super().set_limit(limit)
        self._room = -1.0

    def inherit(self, other: Budget) -> None:
        """Begin with what `other` has used, as `Budget.inherit`."""
        if isinstance(other, RequestBudget):
            other._record_pending()
        super().inherit(other)
        self._pending, self._room = 0.0, -1.0

    def rate(self, now_ms: int) -> float:
        """Percent of one thread now: for metrics."""
        self._record_pending()
        return super().rate(now_ms)

    def _record_pending(self) -> None:
        if self._pending:
            self._rate.record(self._pending, self.charged_ms)
            self._room, self._pending = self._room - self._pending, 0.0

    def _first_of(self, api_key: int, percent: float) -> None:
        """Count what a request of an API has cost that has no entry of its own, or none yet."""
        entry = api_key if 0 <= api_key < API_KEYS_OWN else OTHER_APIS
        self.by_api[entry] = self.by_api.get(entry, 0.0) + percent
