"""`--days` of the pipeline's jobs."""

from __future__ import annotations

from datetime import date

import click
import pytest

from weir.cli.pipeline.days import Days


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-11-01..2026-11-07", date(2026, 11, 1), date(2026, 11, 7)),
        ("2026-11-01..2026-11-01", date(2026, 11, 1), date(2026, 11, 1)),
        ("2026-11-01", date(2026, 11, 1), date(2026, 11, 1)),
    ],
)
def test_days_option_parses_a_day_and_a_range(text: str, first: date, last: date) -> None:
    assert Days()(text) == (first, last)


BACKWARDS = "2026-11-02..2026-11-01"


@pytest.mark.parametrize(
    "text",
    ["", "..", "2026-11-01..", "..2026-11-01", "2026-11-31", "2026-11-01..2026-13-01", "today", BACKWARDS],
)
def test_days_option_refuses_a_range_without_both_ends(text: str) -> None:
    """Above all a range without an end, which would else be its first day alone."""
    why = (
        "ends before it begins: exchange the two"
        if text == BACKWARDS
        else "is not FROM..TO, such as 2026-11-01..2026-11-07"
    )
    with pytest.raises(click.BadParameter) as refused:
        Days()(text)
    assert refused.value.message == f"{text!r} {why}"
