"""The usage of one broker in one role of replication (KIP-73), and the bytes that its rate still allows.

The rate is Kafka's SimpleRate, by default over 11 samples of 1 s as at a broker
(`replication.quota.window.num` and `replication.quota.window.size.seconds`). A broker that is over its rate
is told no throttle time: its throttled partitions carry no records until the rate is below the limit
(ReplicationQuotaManager).

>>> budget = ReplicationBudget(limit=1000)
>>> budget.charge(3000, now_ms=0)
0
>>> budget.allowed_bytes(now_ms=1000), budget.wait_ms(now_ms=1000), budget.allowed_bytes(now_ms=4000)
(-2000.0, 2000, 1000.0)
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from weir.quotas.limiters.counters import CountingLimiter
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.simple_rate import SimpleRate
from weir.quotas.limiters.single import NO_TAGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.quotas.table.entities import Tags

WAIT_MS_MAX: Final = 60_000
"""Longest result (ms) of `ReplicationBudget.wait_ms`. A rate of 0 never allows any bytes."""


class ReplicationBudget(CountingLimiter):
    """The limit and the usage of one broker as leader, or as follower. It tells no throttle times."""

    __slots__ = ("_lifetime_ms", "_rate", "throttled_until_ms")

    def __init__(
        self, limit: float, num_samples: int = NUM_SAMPLES_DEFAULT, window_s: int = WINDOW_S_DEFAULT
    ) -> None:
        """Begin without usage. `limit` is in bytes/s; infinity for no limit. The rate has `num_samples`
        samples of `window_s` seconds.
        """
        super().__init__(NO_TAGS, limit, 0)
        self._rate = SimpleRate(num_samples, window_s * 1000)
        self._lifetime_ms = 1000 * num_samples * window_s
        self.throttled_until_ms = 0
        """0, because followers are told no throttle times."""

    def charge(self, value: float, now_ms: int) -> int:
        """Count `value` bytes of records of throttled replicas; return 0."""
        self.charged += value
        self.absorb(value, now_ms)
        return 0

    def absorb(self, units: float, now_ms: int) -> None:
        """Record bytes that another process has charged to the same broker."""
        self.charged_ms = now_ms
        self._rate.record(units, now_ms)

    def watch(self, note: Callable[[Tags], None]) -> None:
        """Call `note` with the tags of this budget, now and whenever a charge begins a window."""
        self._rate.on_examined = partial(note, self.tags)
        note(self.tags)

    @property
    def restored_max(self) -> float:
        """Number of bytes that another process may have charged: any."""
        return math.inf

    def counting(self, now_ms: int) -> list[tuple[int, float]]:
        """Return (time in ms, bytes) of the charges that still count."""
        return self._rate.counting(now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Return True if all charges are older than the window."""
        return self.charged_ms + self._lifetime_ms <= now_ms

    def allowed_bytes(self, now_ms: int) -> float:
        """Return the bytes that may be charged now before the rate exceeds the limit; negative if it exceeds
        the limit already, infinity without a limit.
        """
        if self.limit == math.inf:
            return math.inf
        total = self._rate.total(now_ms)
        return self.limit * self._rate.window_ms(now_ms) / 1000 - total

    def wait_ms(self, now_ms: int, size: float = 0) -> int:
        """Return the time (ms) until `size` bytes may be charged, if nothing else is charged meanwhile; at
        most `WAIT_MS_MAX`. Samples that expire meanwhile may shorten the time.
        """
        if size <= self.allowed_bytes(now_ms):
            return 0
        if self.limit <= 0:
            return WAIT_MS_MAX
        window_ms = (self._rate.total(now_ms) + size) / self.limit * 1000
        return min(math.ceil(max(window_ms - self._rate.age_ms(now_ms), 1)), WAIT_MS_MAX)

    def rate(self, now_ms: int) -> float:
        """Return the rate in bytes/s, for metrics (LeaderReplicationThrottledRate and
        FollowerReplicationThrottledRate of KIP-73). Has no effect on later results.
        """
        return self._rate.peek(now_ms)
