"""Compare days with the same weekdays before: clients with unusually much use, and the bytes to expect."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from statistics import median
from typing import Final, NamedTuple

from weir.pipeline.report.model import DAY_MS, Columns, Series, Use
from weir.pipeline.report.names import ReportEntity

WEEK_DAYS: Final = 7
WEEKS: Final = 4
"""Number of earlier weeks, the latest, that a day is compared with."""
WEEKS_LEAST: Final = 2
UNUSUAL: Final = 3.0
"""Ratio of a day's bytes to the usual ones, above which the day is unusual."""
ABOVE_HIGHEST: Final = 1.5
"""Ratio of an unusual day's bytes to the highest of the compared days; most clients vary by less."""
SHARE_LEAST: Final = 0.01
"""Least share of the bytes of all entities that an unusual day is above the usual."""
RECORDED_LEAST: Final = 0.75
"""Least recorded time of a day that is compared, as a share of that of the median day."""
_EPOCH: Final = date(1970, 1, 1)


class UnusualDay(NamedTuple):
    """A day on which an entity moved many more bytes than on the same weekday before."""

    entity: ReportEntity
    day: date
    bytes_: float
    usual: float
    """Median of the bytes of the same weekdays before."""


class Expectation(NamedTuple):
    """The bytes to expect, and the errors of such expectations in the past."""

    days: Mapping[date, float]
    """Bytes of each of the seven days after the last recorded one."""
    error: float
    """Median of the errors |expected - recorded| / recorded of past days, each expected from the days until a
    week before.
    """
    error_most: float
    tested: int
    """Number of these days."""


def by_day(columns: Columns, amounts: Series) -> dict[date, float]:
    """Return the sum of the amounts of each day (UTC) that was recorded nearly as long as the median day."""
    days = [
        _EPOCH + timedelta((columns.from_ms + index * columns.step_ms) // DAY_MS)
        for index in range(columns.count)
    ]
    recorded_s, sums = dict.fromkeys(days, 0.0), dict.fromkeys(days, 0.0)
    for day, seconds, amount in zip(days, columns.recorded_s, amounts, strict=True):
        recorded_s[day] += seconds
        sums[day] += amount
    least_s = RECORDED_LEAST * median([s for s in recorded_s.values() if s] or [math.inf])
    return {day: total for day, total in sums.items() if recorded_s[day] >= least_s}


def unusual_days(use: Use) -> list[UnusualDay]:
    """Return the unusual days among the latest seven, those with the most bytes above the usual first."""
    all_bytes = by_day(use.columns, use.bytes_)
    latest = list(all_bytes)[-WEEK_DAYS:]
    found = [
        UnusualDay(client.entity, day, days[day], usual)
        for client in use.clients
        for days in [by_day(use.columns, client.bytes_)]
        for day in latest
        if (same := list(_same_weekdays(days, day).values())) and len(same) >= WEEKS_LEAST
        for usual in [median(same)]
        if days[day] > max(UNUSUAL * usual, ABOVE_HIGHEST * max(same))
        and days[day] - usual >= SHARE_LEAST * all_bytes[day]
    ]
    return sorted(found, key=lambda each: each.usual - each.bytes_)


def expectation(use: Use) -> Expectation | None:
    """Return the bytes of all entities to expect; None before a week of past days shows the errors."""
    days = by_day(use.columns, use.bytes_)
    errors = [
        abs(expected - amount) / amount
        for day, amount in days.items()
        if amount and (expected := _expected(days, day)) is not None
    ]
    if len(errors) < WEEK_DAYS:
        return None
    following = (max(days) + timedelta(ahead) for ahead in range(1, WEEK_DAYS + 1))
    expected_days = {day: amount for day in following if (amount := _expected(days, day)) is not None}
    return Expectation(expected_days, median(errors), max(errors), len(errors))


def _expected(days: Mapping[date, float], day: date) -> float | None:
    """Return the median of the same weekdays before, each continued by the median growth from week to week.
    One unusual day changes neither median much. None without enough weeks.
    """
    same = _same_weekdays(days, day)
    ratios = list(_growths(days, day - timedelta(WEEK_DAYS)))
    if len(same) < WEEKS_LEAST or not ratios:
        return None
    growth = median(ratios)
    return median(amount * growth**weeks for weeks, amount in same.items())


def _same_weekdays(days: Mapping[date, float], day: date) -> dict[int, float]:
    """Return the amounts of the same weekday in the weeks before, by the number of weeks."""
    before = ((weeks, day - timedelta(WEEK_DAYS * weeks)) for weeks in range(1, WEEKS + 1))
    return {weeks: days[each] for weeks, each in before if each in days}


def _growths(days: Mapping[date, float], last: date) -> Iterator[float]:
    """Yield the ratio of each of the latest days until `last` to the day a week before."""
    for back in range(WEEK_DAYS * WEEKS):
        day = last - timedelta(back)
        if day in days and days.get(day - timedelta(WEEK_DAYS)):
            yield days[day] / days[day - timedelta(WEEK_DAYS)]
