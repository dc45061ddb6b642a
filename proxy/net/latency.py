"""Histograms of latency: the time in which Weir forwards a request, and the time in which a broker answers.

Only some requests are measured (`SAMPLE`), because two readings of the clock would cost each request 1 %.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from weir.protocol.api import ApiKey

SAMPLE: Final = 16
"""One of this many reads from a client is measured, on each connection; the first one always."""
FORWARD_BOUNDS_US: Final = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)
"""Upper bounds (µs) of the buckets for forwarding a request."""
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
"""Upper bounds (µs) of the buckets for a broker's answer."""
OTHERS: Final = "others"
_NAMES: Final = {ApiKey.PRODUCE.value: "Produce", ApiKey.FETCH.value: "Fetch"}


class Histogram:
    """Number of times by length."""

    __slots__ = ("bounds_us", "sum_us", "within")

    def __init__(self, bounds_us: tuple[int, ...]) -> None:
        """Begin with no times. `bounds_us` are the upper bounds (µs) of the buckets."""
        self.bounds_us = bounds_us
        self.sum_us = 0
        self.within = [0] * (len(bounds_us) + 1)
        """Number of times by bucket: a time counts for the smallest bound that it does not exceed; the last
        bucket has those above all bounds.
        """

    def note(self, length_us: int) -> None:
        """Count a time of `length_us` (µs)."""
        self.sum_us += length_us
        self.within[bisect_left(self.bounds_us, length_us)] += 1


class Latencies:
    """Latency of all connections, one instance per process."""

    __slots__ = ("answers", "forward")

    def __init__(self) -> None:
        """Begin with no requests."""
        self.forward = Histogram(FORWARD_BOUNDS_US)
        """Time from the beginning of the turn in which a request can be read until it has been sent to the
        broker.
        """
        self.answers = {name: Histogram(ANSWER_BOUNDS_US) for name in (*_NAMES.values(), OTHERS)}
        """Time from then until the broker's response begins to arrive, by API: Produce, Fetch, others."""

    def note_answer(self, api_key: int, length_us: int) -> None:
        """Count a broker's answer to a request of this API after `length_us` (µs)."""
        self.answers[_NAMES.get(api_key, OTHERS)].note(length_us)
