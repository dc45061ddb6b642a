"""Tiers: a few quotas that are enough for all entities, as an alternative to a value for each.

>>> tiers([3.0, 4.0, 30.0, 900.0], 2)
[5.0, 1000.0]
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

TIERS: Final = 6
"""Largest number of tiers of a quota."""


def tiers(values: Sequence[float], most: int = TIERS) -> list[float]:
    """Return at most `most` tiers, ascending, for needed quotas above 0. Tiers are 1, 2 or 5 times a power of
    ten. Each value gets the lowest tier that is at least as high. The tiers are those with the least excess:
    the sum of the logarithms of tier / value.
    """
    counts = Counter(map(round_up, values))
    ends = sorted(counts)
    return _chosen(ends, [counts[end] for end in ends], most)


def round_up(value: float) -> float:
    """Return the lowest number of the series 1, 2, 5, 10, 20, … that is at least `value`, above 0.

    >>> round_up(3.0), round_up(200_000.0), round_up(0.03)
    (5.0, 200000.0, 0.05)
    """
    power = math.floor(math.log10(value))
    series = (float(f"{digit}e{each}") for each in (power - 1, power, power + 1) for digit in (1, 2, 5))
    return next(number for number in series if number >= value)


def tier_of(value: float, of: Sequence[float]) -> float:
    """Return the lowest of the tiers `of` (ascending) that is at least `value`; the highest if none is."""
    return next((tier for tier in of if tier >= value), of[-1])


def _chosen(ends: Sequence[float], counts: Sequence[int], most: int) -> list[float]:
    """Return the best choice of at most `most` of `ends`, among them the last: dynamic programming over the
    last tier chosen. The logarithms of the values themselves are the same in every choice.
    """
    logs = [math.log(end) for end in ends]
    nothing: list[int] = []
    best = [(0.0, nothing), *((math.inf, nothing) for _ in ends)]
    for _ in range(most):
        best = [
            min((_extended(best[start], start, end, logs, counts) for start in range(end)), default=best[0])
            for end in range(len(ends) + 1)
        ]
    return [ends[index] for index in best[-1][1]]


def _extended(
    before: tuple[float, list[int]], start: int, end: int, logs: Sequence[float], counts: Sequence[int]
) -> tuple[float, list[int]]:
    """Return the cost and the tiers if the values of `start` up to `end` get the tier `end - 1`."""
    cost, chosen = before
    return cost + sum(counts[start:end]) * logs[end - 1], [*chosen, end - 1]
