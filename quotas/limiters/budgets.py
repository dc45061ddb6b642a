"""Budget: Kafka's limiter of bytes and request time: a rate over samples, and the wait that it is worth.

`client_quotas` says whose budget a charge goes to. Mutations have limiters of their own kind (`mutations`),
and connections too (`connections`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotas.limiters.limiter import UNLIMITED
from quotas.limiters.rate import Rate
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.limiters.throttle import INT32_MAX, fetch_cap, throttle_ms

if TYPE_CHECKING:
    from quotas.table.entities import Tags

__all__ = ["UNLIMITED", "Budget"]


class Chargeable:
    """A limiter of bytes or request time, or several that are charged as one. (No Protocol: its compiled
    methods are called directly.)
    """

    __slots__ = ()

    def charge(self, value: float, now_ms: int) -> int:
        """Charge `value`; return the time (ms) that its sender must wait, 0 if within the limit."""
        raise NotImplementedError

    def charge_untold(self, value: float, now_ms: int) -> None:
        """Charge `value` for a response that can tell no throttle time."""
        raise NotImplementedError

    def charge_api(self, api_key: int, value: float, now_ms: int) -> int:
        """Charge a request of this API, as `charge`; most limiters do not tell APIs apart."""
        del api_key
        return self.charge(value, now_ms)


class Budget(Chargeable):
    """What those who share `tags` have used lately, and may use; one object for all their connections.

    Nobody slows down for a budget of a shadow entry: it is exceeded again and again where an enforced one is
    exceeded once. Its `throttle_ms_total` is the time in which somebody would have been waiting: where waits
    overlap, it counts once.
    """

    __slots__ = (
        "_is_shadow",
        "_num_samples",
        "_rate",
        "_reported",
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
        self._reported: float = 0.0
        """What of `charged` `delta` has told."""
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
        return self._told(wait_ms, now_ms) if wait_ms else 0

    def _told(self, wait_ms: int, now_ms: int) -> int:
        """Count a throttle time that a charge has caused, and return it."""
        until_ms, last_ms = now_ms + wait_ms, self.throttled_until_ms
        self.throttled += 1
        if not self._is_shadow or last_ms <= now_ms:
            self.throttle_ms_total += wait_ms
        elif until_ms > last_ms:
            self.throttle_ms_total += until_ms - last_ms
        if until_ms > last_ms:
            self.throttled_until_ms = until_ms
        return wait_ms

    def delta(self) -> float:
        """Return what was charged here since this was last asked."""
        charged, self._reported = self.charged - self._reported, self.charged
        return charged

    def absorb(self, units: float, now_ms: int) -> None:
        """Record what was charged elsewhere, in the current sample; the next charge counts it."""
        self.charged_ms = now_ms
        self._rate.add(units, now_ms)

    def tell_rest(self, now_ms: int) -> int:
        """Count a request that is told the rest of the throttle time and is not charged; return that rest
        (ms), 0 if the throttle time is over.
        """
        rest_ms = max(self.throttled_until_ms - now_ms, 0)
        if rest_ms:
            self.throttled += 1
            self.throttle_ms_total += rest_ms
        return rest_ms

    def inherit(self, other: Budget) -> None:
        """Begin with what `other`, of the same windows, has used. Its counts and its waits stay its own."""
        self._rate.inherit(other._rate)

    def becomes(self, kind: type[Budget]) -> Budget:
        """Return a limiter of this kind in place of this one: with what was used, counted and told."""
        successor = kind(
            self.tags,
            self.limit,
            self.charged_ms,
            num_samples=self._num_samples,
            window_s=self._window_s,
            throttle_ms_max=self._throttle_ms_max,
            is_shadow=self._is_shadow,
        )
        successor.inherit(self)
        successor.charged, successor._reported = self.charged, self._reported
        successor.throttled, successor.throttle_ms_total = self.throttled, self.throttle_ms_total
        successor.throttled_until_ms = self.throttled_until_ms
        return successor

    def is_idle(self, now_ms: int) -> bool:
        """Return True if nothing that was charged counts any more, and nobody was told to wait longer than
        until now. A budget that was never charged is idle.
        """
        if self.charged == 0.0 and self._rate.peek(now_ms) == 0.0:
            return True
        lifetime_ms = 1000 * self._num_samples * self._window_s
        return self.charged_ms + lifetime_ms <= now_ms and self.throttled_until_ms <= now_ms

    def rate(self, now_ms: int) -> float:
        """Units per second now. Changes nothing: for metrics."""
        return self._rate.peek(now_ms)
