"""Histograms of latency: the time in which Weir forwards a request, and the time in which a broker answers.

Only some requests are measured (`SAMPLE`), because two readings of the clock would cost each request 1 %.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from weir.protocol.api import ApiKey

SAMPLE: Final = 16
"""Number of reads from a client up to the next measured one; each connection's first read is measured."""
FORWARD_BOUNDS_US: Final = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)
"""Upper bounds (µs) of the buckets in the histogram of the time to forward a request."""
ANSWER_BOUNDS_US: Final = (
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    5_000_000,
)
"""Upper bounds (µs) of the buckets in the histogram of the time until a broker answers."""
OTHERS: Final = "others"
_NAMES: Final = {ApiKey.PRODUCE.value: "Produce", ApiKey.FETCH.value: "Fetch"}


class Histogram:
    """A histogram of durations (µs): the number of durations in each bucket."""

    __slots__ = ("bounds_us", "sum_us", "within")

    def __init__(self, bounds_us: tuple[int, ...]) -> None:
        """Begin with no durations. `bounds_us` are the upper bounds (µs) of the buckets."""
        self.bounds_us = bounds_us
        self.sum_us = 0
        self.within = [0] * (len(bounds_us) + 1)
        """Number of durations by bucket: a duration counts for the smallest bound that it does not exceed.
        The last bucket has the durations above all bounds.
        """

    def note(self, length_us: int) -> None:
        """Count a duration of `length_us` (µs)."""
        self.sum_us += length_us
        self.within[bisect_left(self.bounds_us, length_us)] += 1


class Latencies:
    """Latency of all connections, one instance per process."""

    __slots__ = ("answers", "forward")

    def __init__(self) -> None:
        self.forward = Histogram(FORWARD_BOUNDS_US)
        """Time to forward a request: from the beginning of the reactor's turn (one pass of its loop) that
        reads the request, until the request was sent to the broker.
        """
        self.answers = {name: Histogram(ANSWER_BOUNDS_US) for name in (*_NAMES.values(), OTHERS)}
        """Time from the sending of a request to the broker until the broker's response begins to arrive, by
        API: Produce, Fetch, others.
        """

    def note_answer(self, api_key: int, length_us: int) -> None:
        """Count a broker's answer to a request of this API after `length_us` (µs)."""
        self.answers[_NAMES.get(api_key, OTHERS)].note(length_us)
