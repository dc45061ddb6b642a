"""Tiers, weekdays and full brokers, computed by hand."""

from __future__ import annotations

import doctest
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Final

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.pipeline.recommend import notes, outlook, reasons
from weir.pipeline.recommend import tiers as tiers_module
from weir.pipeline.recommend.outlook import Filling, by_weekday, filling
from weir.pipeline.recommend.tiers import round_up, tiers

MONDAY_MS: Final = int(datetime(2026, 11, 2, tzinfo=UTC).timestamp() * 1000)
HOUR_MS: Final = 3_600_000


def loads(*days: tuple[float, ...], broker: int = 1) -> pl.DataFrame:
    """Return the load of a broker in the first hours of each day, from a Monday on."""
    return pl.DataFrame(
        [
            ("producer_byte_rate", broker, MONDAY_MS + (24 * day + hour) * HOUR_MS, mean)
            for day, hours in enumerate(days)
            for hour, mean in enumerate(hours)
        ],
        ["quota", "broker", "start_ms", "mean"],
        orient="row",
    )


@pytest.mark.parametrize("module", [notes, outlook, tiers_module, reasons])
def test_docstring_examples_of_the_outlook_run(module: object) -> None:
    failed, attempted = doctest.testmod(module)  # type: ignore[arg-type]  # they are modules
    assert attempted
    assert not failed


@given(st.lists(st.floats(0.01, 1e10), min_size=1, max_size=12), st.integers(1, 4))
def test_tiers_are_the_choice_with_the_least_excess(values: list[float], most: int) -> None:
    ends = sorted({round_up(value) for value in values})

    def tier_of(value: float, choice: Sequence[float]) -> float:
        return min(tier for tier in choice if tier >= value)

    def excess(choice: Sequence[float]) -> float:
        return sum(math.log(tier_of(value, choice) / value) for value in values)

    choices = [
        choice
        for count in range(1, most + 1)
        for choice in combinations(ends, count)
        if choice[-1] == ends[-1]
    ]
    found = tiers(values, most)
    assert len(found) <= most
    assert found == sorted(found)
    assert excess(found) == pytest.approx(min(map(excess, choices)), abs=1e-6)


def test_weekday_profile_is_of_the_busiest_hours_of_the_whole_cluster() -> None:
    week: list[tuple[float, ...]] = [(1.0, 2.0), (5.0,), (0.0,), (0.0,), (0.0,), (0.0,), (0.0,)]
    found = by_weekday(pl.concat([loads(*week, (4.0,)), loads((3.0, 0.0), broker=2)]))
    # first Monday: 1 + 3 in the first hour, 2 in the second; second Monday: 4
    assert found.columns == ["quota", "weekday", "days", "usual", "busiest"]
    assert found.rows()[:2] == [
        ("producer_byte_rate", "Monday", 2, 4.0, 4.0),
        ("producer_byte_rate", "Tuesday", 1, 5.0, 5.0),
    ]
    assert found["weekday"][-1] == "Sunday"


def test_a_growing_broker_is_full_when_its_trend_reaches_the_capacity() -> None:
    growing = [(0.0, 40.0 + day) for day in range(21)]
    growing[5] = (0.0, 500.0)  # one busy day changes no trend
    level = [(50.0,)] * 21
    found = list(
        filling(pl.concat([loads(*growing, broker=3), loads(*level)]), {"producer_byte_rate": 102.0})
    )
    # 60 on the last day, 7 per week: 42 / 7
    assert found == [Filling("producer_byte_rate", 3, 60.0, 7.0, 6.0)]
    full = list(filling(loads(*growing), {"producer_byte_rate": 55.0}))
    assert [each.weeks for each in full] == [0.0]


def test_a_trend_of_less_than_two_weeks_fills_no_broker() -> None:
    growing = [(40.0 + day,) for day in range(13)]
    assert list(filling(loads(*growing), {"producer_byte_rate": 60.0})) == []
    assert list(filling(loads(*growing), {})) == []


def test_a_broker_without_load_for_a_week_fills_no_more() -> None:
    """Otherwise a removed broker would be said to be full soon."""
    removed, running = [(40.0 + day,) for day in range(21)], [(50.0,)] * 29
    both = pl.concat([loads(*removed, broker=3), loads(*running)])
    assert list(filling(both, {"producer_byte_rate": 102.0})) == []
