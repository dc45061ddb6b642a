"""Compute histograms of latencies, and the spread of a figure over rounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple, Self

_PER_E_FOLD: Final = 200
"""Number of histogram buckets for each factor of e; each bucket is 0.5 % wide."""


class Spread(NamedTuple):
    """Least, median and greatest value of a figure over several rounds."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the spread of these values. Raises ValueError for an empty sequence."""
        if not values:
            raise ValueError("no values")
        return cls(min(values), median(values), max(values))


def histogram(values: Iterable[float]) -> Counter[int]:
    """Count values >= 1 in buckets that are 0.5 % wide. The result is small, so that processes can send it,
    and histograms can be added.
    """
    return Counter(round(math.log(value) * _PER_E_FOLD) for value in values)


def percentile(buckets: Mapping[int, int], percent: float) -> float:
    """Return the smallest value that at least `percent` % of the values do not exceed, to 0.25 %. `buckets`
    is a histogram as from `histogram`. Raises ValueError if it is empty.
    """
    rank = max(math.ceil(sum(buckets.values()) * percent / 100), 1)
    for bucket in sorted(buckets):
        rank -= buckets[bucket]
        if rank <= 0:
            return math.exp(bucket / _PER_E_FOLD)
    raise ValueError("no values")


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread of the ratios ours / theirs. Each ratio is of two measurements in the same round,
    which met the same disturbances.
    """
    return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])
