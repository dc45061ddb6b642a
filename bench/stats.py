"""Small statistics: histograms of latencies, and the spread of a figure over rounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple, Self

_PER_E_FOLD: Final = 200
"""Buckets are 0.5 % wide."""


class Spread(NamedTuple):
    """A figure over several rounds."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Raises ValueError for no values."""
        if not values:
            raise ValueError("no values")
        return cls(min(values), median(values), max(values))


def histogram(values: Iterable[float]) -> Counter[int]:
    """Values from 1 up in buckets 0.5 % wide: small to send between processes, and can be added."""
    return Counter(round(math.log(value) * _PER_E_FOLD) for value in values)


def percentile(buckets: Mapping[int, int], percent: float) -> float:
    """The smallest value that at least `percent` % of the values do not exceed, within 0.25 %.

    Raises ValueError for no values.
    """
    rank = max(math.ceil(sum(buckets.values()) * percent / 100), 1)
    for bucket in sorted(buckets):
        rank -= buckets[bucket]
        if rank <= 0:
            return math.exp(bucket / _PER_E_FOLD)
    raise ValueError("no values")


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Spread of ours / theirs, each taken within one round, where both met the same disturbances."""
    return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])
