"""The arithmetic of recommendations without Spark: needs, proposals, flags and reasons, computed by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import polars as pl
import pytest

from weir.pipeline.recommend.flags import FEW, HELD_BACK, OUTLIER
from weir.pipeline.recommend.need import POT, needs
from weir.pipeline.recommend.plan import PAIRS, RecommendationPlan
from weir.pipeline.recommend.proposals import proposed, wanted
from weir.pipeline.recommend.reasons import reason
from weir.quotas import QuotaKey

PRODUCE, REQUESTS = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
FIRST: Final = datetime(2026, 11, 2, tzinfo=UTC)  # a Monday
FIRST_MS: Final = int(FIRST.timestamp() * 1000)
HOUR_MS: Final = 3_600_000
MB: Final = 1_000_000.0


def hours(
    *used: float, broker: int = 1, first: int = 0, throttled_s: float = 0.0, client_id: str = "app"
) -> pl.DataFrame:
    """Return one row per hour with use in MB/s, from hour `first` after `FIRST` on."""
    return pl.DataFrame(
        {
            "user": "alice",
            "client_id": client_id,
            "client_id_prefix": pl.Series([None] * len(used), dtype=pl.String),
            "quota": PRODUCE.value,
            "broker": broker,
            "start_ms": [FIRST_MS + (first + number) * HOUR_MS for number in range(len(used))],
            "day": [(FIRST + timedelta(hours=first + number)).date() for number in range(len(used))],
            "used": [rate * MB for rate in used],
            "p95": [rate * MB for rate in used],
            "max": [rate * MB for rate in used],
            "active_s": 3600.0,
            "throttled_s": throttled_s,
            "members": 1,
        }
    )


def proposal(rows: pl.DataFrame, plan: RecommendationPlan, current: float | None = None) -> dict[str, object]:
    """Return the proposal for the only budget in `rows`, with its reason."""
    budgets = (
        rows.select(*POT, "quota")
        .unique()
        .with_columns(
            current=pl.lit(current, pl.Float64),
            alone=pl.lit(current is not None),
            named=pl.lit(current is not None),
            hours=pl.lit(rows.height),
            first_ms=pl.lit(FIRST_MS),
        )
    )
    every = wanted(budgets, needs(rows, plan.hours_percentile), plan, PAIRS)
    found = proposed(every.with_columns(limit="wanted"), plan, FIRST_MS, FIRST_MS + 14 * 24 * HOUR_MS)
    (row,) = found.iter_rows(named=True)
    return {**row, "reason": reason(row, plan)}


PLAN: Final = RecommendationPlan(now=FIRST, quotas=(PRODUCE,))


def test_need_is_the_highest_at_any_broker_not_a_percentile_over_all_brokers() -> None:
    others = [hours(0.01, broker=number) for number in range(2, 25)]
    (row,) = needs(pl.concat([hours(30.0), *others]), None).iter_rows(named=True)
    assert (row["used"], row["broker"]) == (30 * MB, 1)


@pytest.mark.parametrize(
    ("hours_percentile", "expected"),
    [(None, 2.98), (100.0, 3.0), (50.0, 2.0), (75.0, 2.5)],  # 75: half way from 2 to 3
)
def test_need_is_the_chosen_percentile_of_hours_with_use(
    hours_percentile: float | None, expected: float
) -> None:
    rows = hours(2.0, 1.0, 0.0, 3.0)  # an hour without use does not count
    (row,) = needs(rows, hours_percentile).iter_rows(named=True)
    assert row["used"] == pytest.approx(expected * MB)
    assert (row["hours_used"], row["at_ms"]) == (3, FIRST_MS + 3 * HOUR_MS)


def test_one_backfill_in_fourteen_days_makes_no_quota_and_is_flagged() -> None:
    found = proposal(hours(*[5.0] * 200, 100.0, *[5.0] * 135), PLAN)
    # 336 hours: the 99th percentile is below the four highest, and the back-fill is one of these
    assert found["proposed"] == 7.5 * MB
    assert found["flags"] == [OUTLIER]
    assert "p99 in the 99th percentile of 336 hours, at broker 1: 5.00 MB/s; x 1.5 headroom; " in str(
        found["reason"]
    )
    assert "its busiest hour, 2026-11-10 08:00 UTC: 100.00 MB/s" in str(found["reason"])
    assert found["upper"] == 150 * MB


def test_backfill_at_another_broker_makes_no_quota_either() -> None:
    """A percentile of the single hour at that broker made a quota of 225 MB/s, without a flag."""
    backfill = hours(150.0, broker=3, first=100)
    found = proposal(pl.concat([hours(*[1.0] * 200, broker=2), backfill]), PLAN)
    assert (found["proposed"], found["flags"], found["broker"]) == (1.5 * MB, [OUTLIER], 2)
    short = proposal(hours(150.0, 150.0), PLAN)
    assert (short["proposed"], short["flags"]) == (225 * MB, [FEW])


def test_proposal_falls_without_a_cliff_as_hours_beside_a_backfill_grow() -> None:
    """At 100 hours it fell from 225 to 3.74 MB/s."""
    quotas = [proposal(hours(*[1.0] * count, 150.0), PLAN)["proposed"] for count in range(130)]
    falls = [float(str(before)) - float(str(after)) for before, after in pairwise(quotas)]
    assert quotas[0] == 225 * MB
    assert quotas[-1] == 1.5 * MB
    assert min(falls) >= 0
    assert max(falls) < 2.3 * MB  # a hundredth of all


def test_backfill_in_a_short_history_is_flagged() -> None:
    found = proposal(hours(*[5.0] * 30, 100.0), PLAN)
    assert found["proposed"] == pytest.approx((5 + 0.7 * 95) * 1.5 * MB, abs=1)
    assert found["flags"] == [OUTLIER]
    steady = proposal(hours(*[5.0] * 30, 9.0), PLAN)
    assert (steady["proposed"], steady["flags"]) == (pytest.approx((5 + 0.7 * 4) * 1.5 * MB, abs=1), [])


@pytest.mark.parametrize("count", [30, 98, 99, 120, 150, 198, 336])
def test_backfill_of_two_hours_is_flagged_and_daily_job_is_not(count: int) -> None:
    """A back-fill of two hours among 100 to 200 made a quota without a flag. A job of two hours a day had the
    flag until it had run for 100 hours.
    """
    backfill = proposal(hours(*[1.0] * (count - 20), 150.0, 150.0, *[1.0] * 18), PLAN)
    assert (backfill["flags"], backfill["robust"]) == ([OUTLIER], MB)
    if count > 72:
        daily = proposal(hours(*(80.0 if number % 24 < 2 else 1.0 for number in range(count))), PLAN)
        assert (daily["flags"], daily["robust"]) == ([], 80 * MB)


def test_proposal_for_a_throttled_entity_is_a_step_from_what_it_needs_at_least() -> None:
    found = proposal(hours(5.0, 5.0, throttled_s=1800.0), PLAN)
    assert found["proposed"] == 10 * MB
    assert found["flags"] == [HELD_BACK, FEW]
    assert "p99 in the 99th percentile of 2 hours, at broker 1: at least 5.00 MB/s; " in str(found["reason"])
    assert "held back, demand unknown: first step x 2, again in a week" in str(found["reason"])
    assert (found["lower"], found["upper"], found["confidence"]) == (5 * MB, None, None)


def test_proposal_for_an_entity_at_its_quota_is_a_step_without_throttle_times_too() -> None:
    found = proposal(hours(4.9), PLAN, current=5 * MB)
    assert (found["proposed"], found["flags"]) == (10 * MB, [HELD_BACK, FEW])  # twice the quota
    assert "first step x 2 of 5.00 MB/s, again in a week; now 5.00 MB/s" in str(found["reason"])
    free = proposal(hours(4.7), PLAN, current=5 * MB)  # 4.75 MB/s would be within 5 % of the quota
    assert (free["proposed"], free["flags"]) == (7.05 * MB, [FEW])
    above = proposal(hours(10.0), PLAN, current=5 * MB)  # the quota cannot have been in force
    assert (above["proposed"], above["flags"]) == (15 * MB, [FEW])


def test_short_throttle_times_do_not_hide_the_demand() -> None:
    found = proposal(hours(5.0, throttled_s=36.0), PLAN)  # a hundredth of the hour
    assert (found["proposed"], found["flags"]) == (7.5 * MB, [FEW])


def test_lower_and_upper_proposals_follow_from_the_busiest_hours_of_the_days() -> None:
    days = [
        hours(1.0, busiest, first=24 * number) for number, busiest in enumerate((2.0, 4.0, 3.0, 8.0, 3.0))
    ]
    found = proposal(pl.concat(days), RecommendationPlan(now=FIRST, quotas=(PRODUCE,), hours_percentile=80))
    # hours: 1 1 1 1 1 2 3 3 4 8; 80 %: between the 8th and the 9th, 3.2; median of the days: 3
    assert found["proposed"] == pytest.approx(4.8 * MB)
    assert found["lower"] == 4.5 * MB
    assert found["upper"] == 12 * MB
    assert found["confidence"] == pytest.approx(5 / 6)


def test_limits_within_the_capacity_are_rounded_down() -> None:
    plan = RecommendationPlan(now=FIRST, quotas=(REQUESTS,), headroom=1.0, floors={REQUESTS: 5.0})
    budgets = pl.DataFrame(
        {
            "user": "u",
            "client_id": ["a", "b"],
            "client_id_prefix": pl.Series([None, None], dtype=pl.String),
            "quota": REQUESTS.value,
            "current": pl.Series([None, None], dtype=pl.Float64),
            "alone": False,
            "named": False,
            "hours": 5,
            "first_ms": 0,
        }
    )
    rows = hours(40.0).with_columns(
        user=pl.lit("u"), client_id=pl.lit("a"), quota=pl.lit(REQUESTS.value), used=pl.lit(40.001)
    )
    every = wanted(budgets, needs(rows, None), plan, PAIRS)
    limited = every.sort("client_id").with_columns(limit=pl.Series([16.678, 5.0]))
    assert limited["wanted"].to_list() == [40.01, 5.0]
    assert proposed(limited, plan, FIRST_MS, FIRST_MS + HOUR_MS)["proposed"].to_list() == [16.67, 5.0]
