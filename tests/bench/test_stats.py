"""Percentiles and spreads, against numbers worked out by hand."""

from __future__ import annotations

import os
import time

import pytest

from bench.cpu import cpu_s
from bench.stats import Spread, percentile, ratios


@pytest.mark.parametrize(("percent", "value"), [(0, 15), (5, 15), (30, 20), (40, 20), (50, 35), (100, 50)])
def test_percentiles_are_by_nearest_rank(percent: float, value: float) -> None:
    """The example of the usual textbook definition."""
    assert percentile([15, 20, 35, 40, 50], percent) == value


def test_one_value_is_every_percentile() -> None:
    assert percentile([7], 50) == percentile([7], 99) == 7


def test_nothing_has_no_percentile_and_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


def test_spread_of_an_odd_and_an_even_number_of_rounds() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    assert Spread.of([4.0, 1.0, 2.0, 3.0]) == (1.0, 2.5, 4.0)


def test_ratios_are_taken_within_a_round() -> None:
    """The second round was disturbed: both took ten times as long, and their ratio says nothing of it."""
    assert ratios([2.0, 30.0, 4.0], [1.0, 10.0, 1.0]) == (2.0, 3.0, 4.0)


def test_cpu_time_of_a_process_is_what_the_process_says_itself() -> None:
    before_s = time.process_time()
    seen_s = cpu_s(os.getpid())
    assert before_s <= seen_s <= time.process_time()


def test_cpu_time_of_no_process_is_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_s(2**22 + 1)  # beyond Linux's largest process id
