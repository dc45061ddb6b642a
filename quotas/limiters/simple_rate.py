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
    """Rate per second over the time since the start of the oldest sample (a sum of the values recorded in one
    window).
    """

    __slots__ = ()

    def measure(self, now_ms: int) -> float:
        """Return the rate (units per second). Like each reading in Kafka, this empties expired samples (sums
        of values recorded too long ago).
        """
        return self.total(now_ms) / (self.window_ms(now_ms) / 1000.0)

    def window_ms(self, now_ms: int) -> int:
        """Return the time (ms) since the start of the oldest sample (sum of values recorded in one window),
        but at least `window_size_ms`. Empties expired samples.
        """
        return max(self.age_ms(now_ms), self.window_size_ms)

    def age_ms(self, now_ms: int) -> int:
        """Return the time (ms) since the start of the oldest sample. Empties expired samples."""
        self._settle(now_ms)
        return now_ms - self._oldest_ms

    def peek(self, now_ms: int) -> float:
        """Return the rate (units per second) for metrics. Unlike `measure`, this changes nothing: expired
        samples are left out, but not emptied.
        """
        total, oldest_ms = self._look(now_ms)
        return total / (max(now_ms - oldest_ms, self.window_size_ms) / 1000.0)
