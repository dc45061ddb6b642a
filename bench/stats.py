"""Small statistics: percentiles of latencies, and the spread of a figure over rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, Self


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


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the values do not exceed (nearest rank).

    `ordered` is ascending. Raises ValueError for no values.
    """
    if not ordered:
        raise ValueError("no values")
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Spread of ours / theirs, each taken within one round, where both met the same disturbances."""
    return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])
