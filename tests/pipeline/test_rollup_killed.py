"""The roll-up is killed; readers see whole versions only, and the next run completes the work."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.pipeline.killed import SEED, Kill, seen_until_killed
from tests.pipeline.usage_rows import DAY_MS, ingest, record
from weir.pipeline.lake import Lake, read
from weir.pipeline.recommend.job import recommend
from weir.pipeline.recommend.plan import Plan
from weir.pipeline.rollup.columns import PERIODS, ROLLUP
from weir.pipeline.rollup.job import rollup
from weir.quotas import Entity, QuotaKey, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]  # Java starts for every kill

DAYS: Final = 3
NOW: Final = datetime(2026, 3, 5, tzinfo=UTC)
Totals = dict[tuple[int, str], int]
"""Number of requests by (length of the period in s, day)."""


def seen(spark: SparkSession, lake: Lake) -> Totals:
    rows = read(spark, lake.rollup, ROLLUP).where("level = 'user'").groupBy("seconds", "day")
    return {
        (row["seconds"], str(row["day"])): row["requests"]
        for row in rows.agg({"requests": "sum"})
        .selectExpr("seconds", "day", "`sum(requests)` requests")
        .collect()
    }


def totals(*requests: int) -> Totals:
    return {
        (seconds, f"2026-03-0{day + 1}"): count
        for seconds in PERIODS.values()
        for day, count in enumerate(requests)
    }


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """Return a lake with three rolled-up days, with 1, 2 and 3 requests."""
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(day * DAY_MS, requests=1 + day) for day in range(DAYS)])
    rollup(spark, lake)
    return lake


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_readers_of_a_rollup_killed_during_its_write_see_the_version_before(
    spark: SparkSession, lake: Lake, seed: int
) -> None:
    kill, options = Kill("rollup", "during", seed=seed), ("--lake", lake.root, "--all")
    assert seen_until_killed(kill, lambda: seen(spark, lake), "rollup", *options) == [totals(1, 2, 3)]


def test_a_rollup_of_all_days_killed_during_its_write_changes_no_quota(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The day with 100 MB/s was lost, and the next recommendation was 3 MB/s instead of 150 MB/s."""
    lake, proposed = Lake(str(tmp_path)), []

    def recommended() -> None:
        written: list[str] = []
        plan = Plan(now=NOW, quotas=(QuotaKey.PRODUCER_BYTE_RATE,))
        recommend(spark, lake, plan, written.extend)
        proposed.append(parse("".join(written)).values[Entity("u", "c"), QuotaKey.PRODUCER_BYTE_RATE])

    rates = (2_000_000, 100_000_000, 2_000_000)
    ingest(
        spark,
        lake,
        [record(day * DAY_MS, interval_ms=10_000, charged_bytes=10 * rate) for day, rate in enumerate(rates)],
    )
    rollup(spark, lake)
    kill = Kill("rollup", "during")
    seen_until_killed(kill, lambda: seen(spark, lake), "rollup", "--lake", lake.root, "--all")
    recommended()
    rollup(spark, lake)
    recommended()
    assert proposed == [150_000_000.0] * 2


def test_a_rollup_killed_after_its_write_has_the_same_rows_after_the_next_run(
    spark: SparkSession, lake: Lake
) -> None:
    before, after = totals(1, 2, 3), totals(1, 52, 3)
    ingest(spark, lake, [record(DAY_MS + second * 1000, requests=10) for second in range(5)])
    kill, options = Kill("rollup", "after"), ("--lake", lake.root)
    assert seen_until_killed(kill, lambda: seen(spark, lake), "rollup", *options) == [before, after]
    assert rollup(spark, lake).notes[0] == "rolled up: 2026-03-02"
    assert rollup(spark, lake).read["days"] == 0
    assert seen(spark, lake) == after
