"""SimpleRate: the rate of Kafka's replication quotas (KIP-73).

Unlike in `Rate`, the window is the time since the oldest sample's start, but at least W. So a single burst
counts in full within its first second: after 10 MB at once, the rate is above 1 MB/s for 10 s.

>>> rate = SimpleRate(num_samples=11, window_size_ms=1000)
>>> rate.record(10_000_000, now_ms=0)
>>> rate.measure(0), rate.measure(10_000)
(10000000.0, 1000000.0)
"""

from __future__ import annotations

from weir.quotas.limiters.samples import Samples


class SimpleRate(Samples):
    """A sampled rate per second over the time since the oldest sample."""

    __slots__ = ()

    def measure(self, now_ms: int) -> float:
        """Return the rate (units per second). Samples that have expired are emptied, as in Kafka, where each
        reading does this.
        """
        return self.total(now_ms) / (self.window_ms(now_ms) / 1000.0)

    def window_ms(self, now_ms: int) -> int:
        """Return the time (ms) since the start of the oldest sample, but at least `window_size_ms`. Samples
        that have expired are emptied.
        """
        self._settle(now_ms)
        return max(now_ms - self._oldest_ms, self.window_size_ms)

    def peek(self, now_ms: int) -> float:
        """Return the rate per second without emptying samples, for metrics."""
        total, oldest_ms = self._look(now_ms)
        return total / (max(now_ms - oldest_ms, self.window_size_ms) / 1000.0)
