"""Tiers: a few quotas that are enough for all entities, as an alternative to a value for each.

>>> tiers([3.0, 4.0, 30.0, 900.0], 2)
[5.0, 1000.0]
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Final

TIERS: Final = 6
"""Largest number of tiers of a quota."""


def tiers(values: Iterable[float], most: int = TIERS) -> list[float]:
    """Return at most `most` tiers, ascending, for needed quotas above 0. Tiers are 1, 2 or 5 times a power of
    ten. Each value gets the lowest tier that is at least as high. The tiers are those with the least excess:
    the sum of the logarithms of tier / value. The logarithms of the values are the same in every choice.
    """
    ends, counts = zip(*sorted(Counter(map(round_up, values)).items()), strict=True)

    @cache
    def best(count: int, left: int) -> tuple[float, list[float]]:
        """Return the cost and the tiers, at most `left`, of the values up to the end before `count`."""
        if not count or not left:
            return (math.inf if count else 0.0), []
        last = ends[count - 1]
        each = ((sum(counts[start:count]) * math.log(last), best(start, left - 1)) for start in range(count))
        return min((cost + before, [*chosen, last]) for cost, (before, chosen) in each)

    return best(len(ends), most)[1]


def round_up(value: float) -> float:
    """Return the lowest number of the series 1, 2, 5, 10, 20, … that is at least `value`, above 0.

    >>> round_up(3.0), round_up(200_000.0), round_up(0.03)
    (5.0, 200000.0, 0.05)
    """
    power = math.floor(math.log10(value))
    series = (float(f"{digit}e{each}") for each in (power - 1, power, power + 1) for digit in (1, 2, 5))
    return next(number for number in series if number >= value)
