"""SimpleRate: the rate of Kafka's replication quotas (KIP-73): `Rate` without the padding.

The window is the time since the oldest sample's start, but at least W. So a single burst counts in full
within its first second: 10 MB at once against 1 MB/s is too much for 10 s.

>>> rate = SimpleRate(num_samples=11, window_size_ms=1000)
>>> rate.record(10_000_000, now_ms=0)
>>> rate.measure(0), rate.measure(10_000)
(10000000.0, 1000000.0)
"""

from __future__ import annotations

from quotas.limiters.samples import Samples


class SimpleRate(Samples):
    """A sampled rate per second over the time since the oldest sample."""

    __slots__ = ()

    def measure(self, now_ms: int) -> float:
        """The rate per second. A reading that counts: dead samples begin anew."""
        return self.total(now_ms) / (self.window_ms(now_ms) / 1000.0)

    def window_ms(self, now_ms: int) -> int:
        """The time that the rate is measured over, in ms, at least W. A reading that counts."""
        self._settle(now_ms)
        return max(now_ms - self._oldest_ms, self.window_size_ms)

    def peek(self, now_ms: int) -> float:
        """What `measure` would return, but without its effects on later readings: for metrics."""
        total, oldest_ms = self._look(now_ms)
        return total / (max(now_ms - oldest_ms, self.window_size_ms) / 1000.0)
