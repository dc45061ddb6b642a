"""The load of the cluster over weeks: its profile by weekday, and the time until a broker is full.

The load is the average rate of each hour, summed over all entities: exact, and not a sum of peaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import combinations
from statistics import median
from typing import Final, NamedTuple

import polars as pl

DAYS_LEAST: Final = 14
"""Least number of days for a trend: two of each weekday."""
DAYS_MOST: Final = 90
"""Number of days, the latest, from which a trend is computed."""
WEEKS_MOST: Final = 52
"""Number of weeks for which a trend is continued."""
GONE_DAYS: Final = 7
"""Number of days without load, before the latest day, after which a broker counts as removed."""
_DAY: Final = pl.from_epoch("start_ms", time_unit="ms").dt.date().alias("day")


class Filling(NamedTuple):
    """The trend of the busiest hour of each day at one broker, in the quota's unit."""

    quota: str
    broker: int
    now: float
    """Value of the trend on the last day."""
    per_week: float
    weeks: float
    """Number of weeks until the trend reaches the capacity; 0 if it has."""


def by_weekday(loads: pl.DataFrame) -> pl.DataFrame:
    """Return the load of the whole cluster by quota and day of the week, Monday first, in the quota's unit:
    `quota`, `weekday`, `days` (number of these days), `usual` (median of their busiest hours) and `busiest`.
    `loads` has a row per quota, broker and hour: `quota`, `broker`, `start_ms`, `mean`.
    """
    hours = loads.group_by("quota", "start_ms").agg(pl.col("mean").sum())
    days = hours.group_by("quota", _DAY).agg(pl.col("mean").max()).sort("quota", pl.col("day").dt.weekday())
    weekday = pl.col("day").dt.strftime("%A").alias("weekday")
    return days.group_by("quota", weekday, maintain_order=True).agg(
        days=pl.len(), usual=pl.col("mean").median(), busiest=pl.col("mean").max()
    )


def filling(loads: pl.DataFrame, capacity: Mapping[str, float]) -> Iterator[Filling]:
    """Yield the brokers that are full within `WEEKS_MOST` weeks if the trend continues, the first to be full
    first. `capacity` has the capacity of each broker by quota. Brokers with fewer than `DAYS_LEAST` days are
    left out, and so are removed ones.
    """
    days = loads.group_by("quota", "broker", _DAY).agg(pl.col("mean").max()).sort("day")
    is_gone = pl.col("day").max().over("quota", "broker") <= pl.col("day").max() - timedelta(days=GONE_DAYS)
    days = days.filter(~is_gone)
    found = []
    for (quota, broker), rows in days.partition_by("quota", "broker", as_dict=True).items():
        limit = capacity.get(quota)
        if limit is not None and rows.height >= DAYS_LEAST:
            latest = rows.tail(DAYS_MOST)
            now, per_day = trend(latest["day"].to_list(), latest["mean"].to_list())
            missing = max(0.0, limit - now)
            weeks = missing / per_day / 7 if per_day > 0 else math.inf if missing else 0.0
            found.append(Filling(quota, broker, now, per_day * 7, weeks))
    near = (each for each in found if each.weeks <= WEEKS_MOST)
    yield from sorted(near, key=lambda each: (each.weeks, each.quota, each.broker))


def trend(days: Sequence[date], values: Sequence[float]) -> tuple[float, float]:
    """Return the value on the last day, and the slope per day, of the Theil-Sen line: the median of the
    slopes between any two days, which single busy days do not change.

    >>> trend([date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 4)], [10.0, 12.0, 16.0])
    (16.0, 2.0)
    """
    numbers = [day.toordinal() for day in days]
    points = list(zip(numbers, values, strict=True))
    slope = median(
        (after - before) / (to - since) for (since, before), (to, after) in combinations(points, 2)
    )
    at_last = median(value + slope * (numbers[-1] - number) for number, value in points)
    return at_last, slope
