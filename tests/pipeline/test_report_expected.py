"""Unusual days and expectations, from generated weeks of known truth, without Spark."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pytest

from tests.pipeline.report_findings import START_MS, client, findings
from tests.pipeline.report_pages import Page
from weir.pipeline.report.expected import UnusualDay, by_day, expectation, unusual_days
from weir.pipeline.report.model import DAY_MS, HOUR_MS, Columns, Findings, Series, Use
from weir.pipeline.report.names import ReportEntity
from weir.pipeline.report.page import render

FRIDAY: Final = date(2026, 11, 27)
"""The first day."""
DAYS: Final = 42
GROWTH: Final = 1.1
"""Growth of all use from week to week."""
WEEKDAYS: Final = (5.0, 1.0, 1.0, 4.0, 6.0, 6.0, 5.0)
"""Weight of each day, from Friday on."""
DAY_COLUMNS: Final = Columns(START_MS, DAY_MS, (86_400.0,) * DAYS)


def use_of(*entities: tuple[ReportEntity, Series], columns: Columns = DAY_COLUMNS) -> Findings:
    found = findings(*(entity for entity, _ in entities))
    assert found.use is not None
    clients = tuple(client(entity, series) for entity, series in entities)
    total = tuple(map(sum, zip(*(series for _, series in entities), strict=True)))
    return replace(found, use=replace(found.use, columns=columns, bytes_=total, clients=clients))


def weeks(scale: float, noise: random.Random | None = None, spread: float = 0.0) -> list[float]:
    """Return the bytes of each day: a profile of the week, growth, and the exponential of normal noise."""
    return [
        scale
        * WEEKDAYS[day % 7]
        * GROWTH ** (day / 7)
        * (noise.lognormvariate(0, spread) if noise is not None else 1)
        for day in range(DAYS)
    ]


def use(found: Findings) -> Use:
    assert found.use is not None
    return found.use


def test_unusual_days_are_the_generated_ones_and_no_others() -> None:
    """Each of 300 clients varies by a third from day to day; three have one of six times the usual."""
    draw = random.Random(43)
    entities = {ReportEntity(f"user-{rank}", "app"): weeks(1e6, draw, 0.33) for rank in range(300)}
    chosen = {entity: draw.randrange(DAYS - 7, DAYS) for entity in draw.sample(list(entities), 3)}
    for entity, day in chosen.items():
        entities[entity] = weeks(1e7, draw, 0.1)
        entities[entity][day] *= 6
    found = unusual_days(use(use_of(*((entity, tuple(days)) for entity, days in entities.items()))))
    assert {each.entity: (each.day - FRIDAY).days for each in found} == chosen
    assert all(5 < each.bytes_ / each.usual < 9 for each in found), "growth of weeks, and noise, on top of 6"


def test_expectation_follows_weekdays_and_growth_exactly_without_noise() -> None:
    (first, *_), found = (
        weeks(1e6),
        expectation(use(use_of((ReportEntity("alice", "app"), tuple(weeks(1e6)))))),
    )
    assert found is not None
    assert found.error_most == pytest.approx(0, abs=1e-9)
    assert list(found.days) == [FRIDAY + timedelta(DAYS + ahead) for ahead in range(7)]
    assert found.days[FRIDAY + timedelta(DAYS)] == pytest.approx(first * GROWTH**6)


def test_the_error_of_past_expectations_is_about_that_of_the_next_week() -> None:
    ratios = []
    for seed in range(30):
        draw = random.Random(seed)
        recorded = [weeks(1e6, draw, 0.1), weeks(2e6, draw, 0.1)]
        found = expectation(
            use(use_of(*((ReportEntity(str(n), ""), tuple(r)) for n, r in enumerate(recorded))))
        )
        assert found is not None
        truth = [3e6 * WEEKDAYS[day % 7] * GROWTH ** (day / 7) for day in range(DAYS, DAYS + 7)]
        errors = sorted(
            abs(amount - right) / right for amount, right in zip(found.days.values(), truth, strict=True)
        )
        ratios.append(errors[3] / found.error)
    assert 0.5 < sorted(ratios)[15] < 1.5


def test_unusual_day_does_not_change_the_expectation() -> None:
    days = weeks(1e6)
    days[-5] *= 100
    found = expectation(use(use_of((ReportEntity("alice", "app"), tuple(days)))))
    assert found is not None
    assert list(found.days.values()) == pytest.approx([weeks(1e6)[-7 + n] * GROWTH for n in range(7)])


def test_days_recorded_in_part_and_short_times_are_not_compared() -> None:
    hours = Columns(START_MS + 12 * HOUR_MS, HOUR_MS, (3600.0,) * (12 + 2 * 24 + 3))
    assert by_day(hours, (1.0,) * hours.count) == {FRIDAY + timedelta(1): 24.0, FRIDAY + timedelta(2): 24.0}
    few = use_of((ReportEntity("alice", "app"), tuple(weeks(1e6)[:20])), columns=DAY_COLUMNS.latest(20))
    assert expectation(use(few)) is None


def test_page_names_unusual_clients_and_the_expected_bytes() -> None:
    days = weeks(1e6)
    days[-3] *= 6 * (GROWTH**-2 + GROWTH**-3) / 2  # the usual is the middle of the four weeks before
    page = render(
        use_of(
            (ReportEntity("alice", "app"), tuple(days)), (ReportEntity("bob", "new"), (*(0.0,) * 41, 9e7))
        ),
        made=datetime(2026, 11, 28, tzinfo=UTC),
        version="1",
    )
    text = " ".join(Page(page).text.split())
    assert "6 \N{MULTIPLICATION SIGN} the usual Tuesday" in text
    assert "no use on a usual Thursday, 90 MB on 7 Jan" in text
    assert "are expected from 8 Jan to 14 Jan: Fri" in text
    assert "The same expectation of 28 past days was wrong by" in text


def test_new_client_counts_as_unusual() -> None:
    day = FRIDAY + timedelta(DAYS - 1)
    bob = ReportEntity("bob", "new")
    found = use_of((ReportEntity("alice", "app"), tuple(weeks(1e6))), (bob, (*(0.0,) * (DAYS - 1), 9e7)))
    assert unusual_days(use(found)) == [UnusualDay(bob, day, 9e7, 0.0)]
