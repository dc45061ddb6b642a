"""Percentiles and spreads, against numbers worked out by hand."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from bench.cpu import cpu_s, rss_bytes
from bench.stats import Spread, histogram, percentile, ratios


@pytest.mark.parametrize(("percent", "value"), [(0, 15), (5, 15), (30, 20), (40, 20), (50, 35), (100, 50)])
def test_percentiles_are_by_nearest_rank(percent: float, value: float) -> None:
    """The example of the usual textbook definition, within the width of a bucket."""
    assert percentile(histogram([15, 20, 35, 40, 50]), percent) == pytest.approx(value, rel=0.0025)


def test_every_percentile_of_one_value_is_that_value() -> None:
    seen = histogram([7])
    assert percentile(seen, 50) == percentile(seen, 99) == pytest.approx(7, rel=0.0025)


@pytest.mark.parametrize("value", [1, 1.5, 99, 12_345, 10**9, 3 * 10**10])
def test_a_bucket_is_half_a_percent_wide(value: float) -> None:
    assert percentile(histogram([value]), 50) == pytest.approx(value, rel=0.0025)


def test_histograms_add_up() -> None:
    both = histogram([10, 20]) + histogram([30])
    assert both.total() == 3
    assert percentile(both, 50) == pytest.approx(20, rel=0.0025)


def test_percentile_and_spread_of_no_values_are_errors() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile({}, 50)
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


def test_spread_of_an_odd_and_an_even_number_of_rounds() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    assert Spread.of([4.0, 1.0, 2.0, 3.0]) == (1.0, 2.5, 4.0)


def test_ratios_are_taken_within_a_round() -> None:
    """The second round was disturbed: both took ten times as long, and their ratio says nothing of it."""
    assert ratios([2.0, 30.0, 4.0], [1.0, 10.0, 1.0]) == (2.0, 3.0, 4.0)


def test_cpu_time_of_a_process_agrees_with_its_own_clock() -> None:
    before_s = time.process_time()
    seen_s = cpu_s(os.getpid())
    assert before_s <= seen_s <= time.process_time()


def test_cpu_time_of_no_process_is_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_s(2**22 + 1)  # beyond Linux's largest process id


def test_memory_of_a_process_agrees_with_the_kernels_count() -> None:
    """The kernel brings its two counts up to date at different moments, a few pages apart."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    assert rss_bytes(os.getpid()) == pytest.approx(pages * resource.getpagesize(), rel=0.05)


def test_memory_of_no_process_is_an_error() -> None:
    with pytest.raises(OSError, match="No such file"):
        rss_bytes(2**22 + 1)
