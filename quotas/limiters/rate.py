"""Rate: units per second, as measured by Kafka's client quotas (Kafka's `Rate`, 3.8 and newer).

A sample is the sum of the values recorded in W ms (module `samples`). The rate is the sum of all samples that
have not expired, divided by the time that they cover, the *window*:

    elapsed = now - start of the oldest sample
    window  = elapsed                            if elapsed >= (N-1)·W
              (N-1)·W + elapsed modulo W         otherwise

Because of the second line, the rate of a new client is computed as if the client had been silent for N-1
windows before. With the defaults N = 11 and W = 1000 ms, a quota of 1000 bytes/s allows 10 000 bytes at once.

>>> rate = Rate(num_samples=11, window_size_ms=1000)
>>> rate.add(10_000, now_ms=0), rate.window_ms(0)
(1000.0, 10000)
>>> round(rate.measure(999), 1), rate.measure(1000)  # the window grows, and falls back each full second
(909.2, 1000.0)
>>> rate.measure(10_999) > 0, rate.measure(11_000)  # a sample expires 11 windows after its last record
(True, 0.0)

Tests compare the results with numbers from Kafka's own classes, to the last bit.
"""

from __future__ import annotations

import math
from typing import Final

from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT, Samples, added

SURELY: Final = 1 - 1e-6
"""Factor that is larger than the rounding errors of a sum: `Samples` adds the values of at most one window to
the exact sum, and a billion additions change it by less.
"""


class Rate(Samples):
    """Rate per second, computed from samples: sums of the values recorded in one window each. Kafka's N is
    `num_samples`, the length W of a window (ms) is `window_size_ms`.
    """

    __slots__ = ("span_ms",)

    def __init__(
        self, num_samples: int = NUM_SAMPLES_DEFAULT, window_size_ms: int = 1000 * WINDOW_S_DEFAULT
    ) -> None:
        """Begin without records. Raises ValueError if either number is below 1."""
        super().__init__(num_samples, window_size_ms)
        self.span_ms = (num_samples - 1) * window_size_ms
        """Minimum length (ms) of the time over which the rate is measured: N-1 windows."""

    def add(self, value: float, now_ms: int, spare_total: float = -math.inf) -> float:
        """Record `value`, and return the new rate (units per second), like `record` and then `measure`. While
        all samples together are surely below `spare_total`, return 0.0: the caller needs no rate then.
        """
        if not self.quiet_from_ms <= now_ms < self.quiet_until_ms:
            self._open(now_ms)
            self._purge(now_ms)
            self._note_span()
        current = self._current
        values = self._values
        values[current] += value
        self._lasts[current] = now_ms
        self._about += value
        if self._about < spare_total and now_ms >= self._oldest_ms:
            return 0.0
        return added(values) / (self._window_since(self._oldest_ms, now_ms) / 1000.0)

    def total_at(self, rate: float) -> float:
        """Return a number of units such that the rate is surely below `rate` while all samples together have
        less: `spare_total` of `add`. The window is never shorter than `span_ms`.
        """
        return rate * (self.span_ms / 1000.0) * SURELY

    def measure(self, now_ms: int) -> float:
        """Return the rate (units per second). Like each reading in Kafka, this empties expired samples (sums
        of values whose last was recorded N windows ago or earlier).
        """
        return self.total(now_ms) / (self.window_ms(now_ms) / 1000.0)

    def window_ms(self, now_ms: int) -> int:
        """Return the length (ms, at least 1) of the time over which the rate is measured. Empties expired
        samples (sums of values whose last was recorded N windows ago or earlier).
        """
        self._settle(now_ms)
        return self._window_since(self._oldest_ms, now_ms)

    def peek(self, now_ms: int) -> float:
        """Return the rate (units per second) for metrics. Unlike `measure`, this changes nothing: expired
        samples are left out, but not emptied.
        """
        total, oldest_ms = self._look(now_ms)
        return total / (self._window_since(oldest_ms, now_ms) / 1000.0)

    def _window_since(self, oldest_ms: int, now_ms: int) -> int:
        elapsed_ms = now_ms - oldest_ms
        if elapsed_ms < self.span_ms:
            # The remainder has the sign of `elapsed_ms`, as in Java: negative if the clock stepped back.
            size_ms = self.window_size_ms
            elapsed_ms = self.span_ms + (
                elapsed_ms % size_ms if elapsed_ms >= 0 else -(-elapsed_ms % size_ms)
            )
        return elapsed_ms if elapsed_ms > 0 else 1
