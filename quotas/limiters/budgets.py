"""Budget: Kafka's limiter of bytes and request time, which computes throttle times from a sampled rate.

`client_quotas` finds the budget of a client. Partition mutations and connections have other limiters
(`quotas.mutations`, `quotas.connections`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from weir.quotas.limiters.counters import CountingLimiter
from weir.quotas.limiters.limiter import UNLIMITED
from weir.quotas.limiters.rate import Rate
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.throttle import INT32_MAX, fetch_cap, throttle_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.quotas.table.entities import Tags

__all__ = ["UNLIMITED", "Budget"]

SHARE_OWED_MIN: Final = 0.02
"""Part of `fetch_max_bytes` for which share fetches always ask, so that a client at its limit does not need a
request for each batch: 0.2 of ten seconds.
"""
HAIR_MS: Final = 1e-6
"""Wait (ms) that is ignored, because it can be due to rounding of floats."""
KEPT_MAX: Final = 0.99
"""Maximum part of a group's limit that members use below their floors. All of it would leave nothing to the
others, who would wait without end.
"""


class Budget(CountingLimiter):
    """Usage and limit of the clients that share `tags`; one object for all their connections.

    No client waits for the budget of a shadow entry, so requests keep exceeding it during the throttle time,
    and the throttle times overlap. The `throttle_ms_total` of such a budget counts overlapping throttle times
    once.
    """

    __slots__ = (
        "_absorbed",
        "_ahead_ms",
        "_is_shadow",
        "_num_samples",
        "_rate",
        "_shared_until_ms",
        "_spare_total",
        "_throttle_ms_max",
        "_turn_ms",
        "_window_s",
        "fetch_max_bytes",
        "floors",
        "share_fetches",
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
        """Begin at `now_ms` without usage. `limit` is in units/s; `num_samples` and `window_s` are Kafka's
        `quota.window.num` and `quota.window.size.seconds`; `throttle_ms_max` is the maximum throttle time.
        """
        super().__init__(tags, limit, now_ms)
        self._is_shadow = is_shadow
        self.throttled_until_ms = now_ms
        """Time (ms) at which the latest of the throttle times ends; the creation time if no request was
        throttled.
        """
        self.share_fetches = 0
        """Number of share fetches (KIP-932) of these clients that are at the broker."""
        self.floors: Budget | None = None
        """Limiter that counts the use of members below their floors (`quotas.limiters.chain`); None
        if no member has a floor, and if this is no group's budget.
        """
        self._shared_until_ms = 0.0
        """Time (ms) at which the limit has paid for all responses of share fetches."""
        self._turn_ms = 0
        """Time (ms) at which the limit has paid for the responses of all connections in line; 0 before the
        first line.
        """
        self._ahead_ms = 0.0
        """Time (ms, below 1) by which `_turn_ms` is rounded up."""
        self._absorbed = 0.0
        """Number of units that were absorbed; a group takes those of its `floors` off its own."""
        self._rate = Rate(num_samples, 1000 * window_s)
        self._num_samples = num_samples
        self._window_s = window_s
        self._throttle_ms_max = throttle_ms_max
        self.set_limit(limit)

    def set_limit(self, limit: float) -> None:
        """Replace the limit (units per second; `UNLIMITED` for no limit). The usage stays."""
        self.limit = limit
        self._spare_total = self._rate.total_at(limit)
        self.fetch_max_bytes = fetch_cap(limit, self._num_samples, self._window_s)

    def charge(self, value: float, now_ms: int) -> int:
        """Charge `value` units; return the throttle time (ms), 0 if the rate is within the limit."""
        self.charged += value
        self.charged_ms = now_ms
        rate = self._rate.add(value, now_ms, self._spare_total)
        return 0 if rate <= self.limit else self._exceeded(rate, now_ms)

    def charge_in_turn(self, value: float, now_ms: int) -> int:
        """Charge `value` units of a fetch response; return the throttle time (ms).

        If other connections wait, this one goes to the end of their line: it waits until the limit has paid
        for all of their responses, and for its own. Kafka lets all of them try at the same time, and the
        fastest wins. (Rejected: that. Of ten connections one got 0.00 of its share, another one 3.46.)
        """
        before_ms = self.throttled_until_ms
        wait_ms = self.charge(value, now_ms)
        if before_ms <= now_ms:
            return wait_ms
        if self._turn_ms < before_ms:
            self._turn_ms, self._ahead_ms = before_ms, 0.0
        self._lengthen_line(value, now_ms)
        turn_ms = self._turn_ms - now_ms
        if turn_ms <= wait_ms:
            return wait_ms
        if wait_ms:
            self.throttled -= 1
            self.throttle_ms_total -= wait_ms
        return self._told(turn_ms, now_ms)

    def has_line(self, now_ms: int) -> bool:
        """Return True if connections stand in line for this budget (`charge_in_turn`)."""
        return self._turn_ms > now_ms

    def _lengthen_line(self, units: float, now_ms: int) -> None:
        # A fraction of a ms that is rounded up is left out the next time, or the fractions would add up. It
        # is no part of a time, because a Unix time in ms leaves a float few digits for it.
        pay_ms = self._pay_ms(units)
        if self.floors is not None:
            # Members below their floors stand in no line, so that only the others' part of the limit pays. No
            # line is longer than a window because of it, or those who stand in line would get nothing.
            left_ms = units * 1000.0 / self._left(self.floors, now_ms)
            pay_ms = max(pay_ms, min(left_ms, now_ms + self._rate.span_ms - self._turn_ms))
        pay_ms = min(pay_ms, self._throttle_ms_max) - self._ahead_ms
        step_ms = math.ceil(pay_ms - HAIR_MS)
        self._turn_ms = min(self._turn_ms + step_ms, now_ms + self._throttle_ms_max)
        self._ahead_ms = step_ms - pay_ms

    def _pay_ms(self, value: float) -> float:
        """Return the time (ms) in which the limit pays for `value` units."""
        return value * 1000.0 / self.limit if self.limit else math.inf

    def closed_until_ms(self, *, in_line: bool) -> int:
        """Return the time (ms) until which a connection's fetches bring no records. `in_line`: True for a
        connection that has waited for the line before, and so has a turn; it need not wait for the others
        unless the line is longer than the window.
        """
        return self.throttled_until_ms - self._rate.span_ms if in_line else self.throttled_until_ms

    def fetch_max_bytes_at(self, now_ms: int, *, in_line: bool) -> int:
        """Return the maximum `max_bytes` of a fetch now; 0 if the fetch must bring no records.

        A connection that has its turn while others wait asks for half of the part of the window that they
        leave. If each one does so, all get equal responses, which fit into one window.
        """
        over_ms = self.throttled_until_ms - now_ms
        if over_ms <= 0:
            return self.fetch_max_bytes
        room_ms = self._rate.span_ms - over_ms
        if not in_line or room_ms <= 0:
            return 0
        if self.floors is None:
            return int(min(room_ms * self.limit / 2000.0, self.fetch_max_bytes))
        left = self._left(self.floors, now_ms)
        return max(int(min(room_ms * left / 2000.0, self.fetch_max_bytes)), 1)

    def charge_within(self, value: float, now_ms: int, most_ms: int) -> int:
        """Charge `value` units for a client that waits for `most_ms` at most; return the throttle time
        (ms).
        """
        usual_ms, self._throttle_ms_max = self._throttle_ms_max, min(self._throttle_ms_max, most_ms)
        wait_ms = self.charge(value, now_ms)
        self._throttle_ms_max = usual_ms
        return wait_ms

    def count(self, value: float, now_ms: int) -> None:
        """Count `value` units for which nobody can have to wait."""
        self.charged += value
        self.charged_ms = now_ms
        self._rate.record(value, now_ms)

    @property
    def span_ms(self) -> int:
        """Minimum length (ms) of the time over which the rate is measured."""
        return self._rate.span_ms

    def add_share_fetches(self, number: int) -> None:
        """Add to the number of share fetches that are at the broker."""
        self.share_fetches += number

    def share_fetch_max_bytes(self, now_ms: int) -> int:
        """Return the number of bytes for which the next share fetch may ask: at least 1, for which a broker
        sends a batch.

        Responses of share fetches are always delivered, and several may be under way before the first is
        charged. So a share fetch asks for no more than the limit owes it within one window, and each one that
        is at the broker halves that: all together ask for less than twice as much.
        """
        owed = 1 - (self._shared_until_ms - now_ms) / self._rate.span_ms
        return max(int(self.fetch_max_bytes * min(max(owed, SHARE_OWED_MIN), 1.0)) >> self.share_fetches, 1)

    def owe(self, units: float, now_ms: int) -> int:
        """Note that `units`, which were charged, came in the response of a share fetch. Return the time (ms)
        for which its clients are over the limit.

        A rate forgets an excess that is older than its window, but parallel responses can exceed the limit by
        several windows at once. So these clients also wait until the limit has paid for all but one window.
        """
        paid_ms = max(self._shared_until_ms, now_ms) + self._pay_ms(units)
        self._shared_until_ms = min(paid_ms, now_ms + self._throttle_ms_max)
        until_ms = int(self._shared_until_ms) - self._rate.span_ms
        self.throttled_until_ms = max(self.throttled_until_ms, until_ms)
        return max(self.throttled_until_ms - now_ms, 0)

    def _exceeded(self, rate: float, now_ms: int) -> int:
        """Compute and count the throttle time of a charge after which `rate` (units per second) is above the
        limit; return it (ms).
        """
        window_ms = self._rate.window_ms(now_ms)
        wait_ms = throttle_ms(rate, self.limit, window_ms, self._throttle_ms_max)
        if self.floors is not None:
            left = self._left(self.floors, now_ms)
            left_ms = throttle_ms(rate - self.limit + left, left, window_ms, self._throttle_ms_max)
            wait_ms = max(wait_ms, min(left_ms, self._rate.span_ms))
        return self._told(wait_ms, now_ms) if wait_ms else 0

    def _left(self, floors: Budget, now_ms: int) -> float:
        """Return the part of the limit (units per second) that members leave who are below their floors."""
        return self.limit - min(floors.rate(now_ms), KEPT_MAX * self.limit)

    def _told(self, wait_ms: int, now_ms: int) -> int:
        """Count a throttled request, which is told to wait for `wait_ms`; return `wait_ms`."""
        until_ms, last_ms = now_ms + wait_ms, self.throttled_until_ms
        self.throttled += 1
        if not self._is_shadow or last_ms <= now_ms:
            self.throttle_ms_total += wait_ms
        elif until_ms > last_ms:
            self.throttle_ms_total += until_ms - last_ms
        if until_ms > last_ms:
            self.throttled_until_ms = until_ms
        return wait_ms

    def release(self, now_ms: int) -> int:
        """End the throttle at the time that present usage and limit give, if that is earlier. Return the time
        (ms) at which it ends.
        """
        until_ms = now_ms + self._present_wait_ms(now_ms)
        self.throttled_until_ms = min(self.throttled_until_ms, until_ms)
        self._shared_until_ms = min(self._shared_until_ms, until_ms)
        self._turn_ms = min(self._turn_ms, until_ms)
        return self.throttled_until_ms

    def _present_wait_ms(self, now_ms: int) -> int:
        """Return the throttle time (ms) of a request that uses nothing. A rate forgets usage that is older
        than its window.
        """
        return throttle_ms(self.rate(now_ms), self.limit, self._rate.span_ms, self._throttle_ms_max)

    def watch(self, note: Callable[[Tags], None]) -> None:
        """Call `note` with the tags of this budget, now and whenever a charge begins a window."""
        self._rate.on_examined = partial(note, self.tags)
        note(self.tags)

    def absorb(self, units: float, now_ms: int) -> None:
        """Record units that another process or limiter has charged under the same limit. They lengthen the
        throttle time of the next charge here.
        """
        self.charged_ms = now_ms
        self._rate.add(units, now_ms)
        self._absorbed += units
        if self.floors is not None:  # what members use below their floors is among the units
            below = min(self.floors._absorbed, units)
            self.floors._absorbed -= below
            units -= below
        if self.has_line(now_ms):
            self._lengthen_line(units, now_ms)
            self.throttled_until_ms = max(self.throttled_until_ms, self._turn_ms)

    @property
    def forgets_excess(self) -> bool:
        """True if clients wait for this budget, and usage stops counting before the limit has paid for it.
        Then Weirs that share usage repay it (`quotas.sharing.repayment`).
        """
        return not self._is_shadow

    @property
    def restored_max(self) -> float:
        """Number of units after which clients wait for one window."""
        return 2 * self._spare_total

    def counting(self, now_ms: int) -> list[tuple[int, float]]:
        """Return (time in ms, units) of the charges that still count: another limiter of this class that
        absorbs them has the same usage. Changes nothing that clients notice.
        """
        return self._rate.counting(now_ms)

    def tell_rest(self, now_ms: int, most_ms: int = INT32_MAX) -> int:
        """Return the time (ms, at most `most_ms`) for which the throttle of this budget's clients still
        lasts; 0 if it is over. The caller tells this time to a request that was not charged, so count that
        request as throttled.
        """
        rest_ms = self.throttled_until_ms - now_ms
        if rest_ms > most_ms:
            rest_ms = most_ms
        if rest_ms <= 0:
            return 0
        self.throttled += 1
        self.throttle_ms_total += rest_ms
        return rest_ms

    def inherit(self, other: Budget) -> None:
        """Begin with the samples of `other`, which must have the same `num_samples` and `window_s`. Counters
        and throttle times are not copied.
        """
        self._rate.inherit(other._rate)

    def becomes(self, kind: type[Budget]) -> Budget:
        """Return a new limiter of the class `kind` with the limit, usage, counters and throttle time of this
        budget.
        """
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
        """Return True if removing this budget would lose nothing: no former charge can lengthen a later
        throttle time, and no throttle time that clients were told lasts beyond `now_ms`. A budget that was
        never charged is idle.
        """
        if self.throttled_until_ms > now_ms:
            return False
        if self.charged == 0.0 and self._rate.peek(now_ms) == 0.0:
            return True
        return self.charged_ms + 1000 * self._num_samples * self._window_s <= now_ms

    def rate(self, now_ms: int) -> float:
        """Return the current rate (units per second), for metrics. Changes nothing."""
        return self._rate.peek(now_ms)
