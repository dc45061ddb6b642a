"""Measures the request time of requests at a broker, by means of the broker's own request quota.

A client-id that no other client uses gets a small request_percentage P, and sends the same request again
and again. The broker records the time of each request (KIP-124). Once the sum, spread over the window W, is
above P, the broker answers with

    throttle = (rate - P) / P · W,    rate = sum / W,    so    sum = P · (W + throttle)

in percent-seconds; one percent-second is 10 ms of a thread. The sum divided by the number of requests is the
cost of one request. W is longer than the time of the measurement: Kafka's `Rate` assumes N-1 silent windows
before the first record (`quotas.limiters.rate`), so W is 10 s plus the time since the last full second.

>>> spent = spent_us(percent=0.1, throttle_ms=40, elapsed_s=0.2, windows=Windows())
>>> round(spent, 3), round(spent / 512, 2)  # 0.1 % of 10.24 s, by 512 requests
(10240.0, 20.0)

The broker records a request's time on the network threads after the response, so the sum lacks that time of
the last request. With at least `COUNT_WANTED` requests the error is negligible.
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.limiters.request_time import US_PER_PERCENT
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNT_WANTED: Final = 100
"""Minimum number of requests in a reading (one series of equal requests). The broker's sum lacks a part of
the last request's time; among this number of requests, that part is negligible.
"""
SPENT_WANTED_US: Final = 25_000.0
"""Minimum request time (µs) that the requests of a reading (one series of equal requests) should take
together, so that rounding of the throttle time to 1 ms changes the result little.
"""
EDGE_S: Final = 0.02
"""Time (s) before and after each change of the window of the broker's rate. In this time, Weir's clock and
the broker's may disagree about the length of the window, so a reading that ends then is useless.
"""


@dataclass(frozen=True, slots=True)
class Windows:
    """The broker's `quota.window.num` and `quota.window.size.seconds`."""

    num: int = NUM_SAMPLES_DEFAULT
    size_s: int = WINDOW_S_DEFAULT

    @property
    def span_s(self) -> int:
        """Minimum length (s) of the window of a rate."""
        return max((self.num - 1) * self.size_s, 1)

    def window_s(self, elapsed_s: float) -> float:
        """Return the length (s) of the window of a rate, `elapsed_s` after its first record."""
        return elapsed_s if elapsed_s >= self.span_s else self.span_s + elapsed_s % self.size_s


class CostReading(NamedTuple):
    """Measurement of one series of equal requests, which ends with the first response that has a throttle
    time.
    """

    requests: int
    """Number of requests that were answered, including the one whose response had a throttle time."""
    throttle_ms: int
    """Throttle time (ms) in the last response."""
    elapsed_s: float
    """Time (s) from the first response to the last."""


def percent_for(total_us: float, windows: Windows) -> float:
    """Return the quota (percent of a thread) that requests just exceed if they take `total_us` (µs)
    together.
    """
    return total_us / US_PER_PERCENT / windows.span_s


def wanted_us(expected_us: float) -> float:
    """Return the request time (µs) that all requests of a reading should take together, if each is expected
    to cost `expected_us`.
    """
    return max(SPENT_WANTED_US, COUNT_WANTED * expected_us)


def spent_us(percent: float, throttle_ms: int, elapsed_s: float, windows: Windows) -> float:
    """Return the sum of request times (µs) that a broker has recorded, if it answers with this throttle time
    under a quota of `percent` (of a thread).
    """
    return percent * US_PER_PERCENT * (windows.window_s(elapsed_s) + throttle_ms / 1000)


def measured_us(percent: float, elapsed_s: float, windows: Windows) -> float:
    """Return the request time (µs) that a broker has recorded if its metric `request-time` shows
    `percent`.
    """
    return percent * US_PER_PERCENT * windows.window_s(elapsed_s)


def fault(reading: CostReading, windows: Windows) -> str | None:
    """Return the reason why a reading (measurement of one series of equal requests) is useless, as one line;
    None if the reading is good.

    Brokers cut a throttle time at one window, so a throttle time of a whole window gives only a lower bound.
    """
    if reading.throttle_ms >= 1000 * windows.size_s:
        return "its last request cost more than a whole window"
    if reading.elapsed_s >= windows.span_s:
        return f"it took longer than {windows.span_s} s"
    if reading.elapsed_s > EDGE_S and windows.size_s > EDGE_S * 2:
        into_s = reading.elapsed_s % windows.size_s
        past_first = reading.elapsed_s > windows.size_s - EDGE_S
        if past_first and not EDGE_S <= into_s <= windows.size_s - EDGE_S:
            return "it ended where the window changes"
    return None


def median(values: Sequence[float]) -> float:
    """Return the median of `values`. Raises ValueError if there are no values."""
    if not values:
        raise ValueError("no values")
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
