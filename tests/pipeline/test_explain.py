"""Spark's plan of the roll-up, which shows operations that would be slow at scale."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.sql import functions as sql

from tests.pipeline.usage_rows import DAY_MS, FIRST_MS, ingest, record
from weir.pipeline import tables
from weir.pipeline.lake import Lake
from weir.pipeline.rollup.days import files
from weir.pipeline.rollup.job import usage_of
from weir.pipeline.rollup.periods import PERIODS, periods
from weir.pipeline.rollup.windows import by_time, windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FORBIDDEN: Final = (
    *("CartesianProduct", "BroadcastNestedLoopJoin"),
    *("BatchEvalPython", "ArrowEvalPython", "MapInPandas", "MapInArrow", "FlatMapGroupsInPandas"),
)
WINDOW_MS: Final = 10_000


def plan(rows: DataFrame) -> str:
    """Return the physical plan, unabridged."""
    conf, name, out = rows.sparkSession.conf, "spark.sql.maxMetadataStringLength", io.StringIO()
    before = conf.get(name)
    conf.set(name, "10000")
    with redirect_stdout(out):
        rows.explain()
    conf.set(name, str(before))
    return out.getvalue()


def after_what_is_kept(shown: str) -> str:
    """Return a plan without the plans of its cached tables."""
    lines, depth = [], None
    for line in shown.splitlines():
        indent = len(line) - len(line.lstrip(" :+-"))
        if depth is not None and (indent > depth or not line.strip()):
            continue
        depth = indent if "InMemoryRelation " in line else None
        lines.append(line)
    return "\n".join(lines)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(day * DAY_MS) for day in range(3)])
    return lake


@pytest.mark.parametrize("period", PERIODS)
def test_the_rollup_plan_shuffles_windows_twice_and_periods_not_at_all(
    spark: SparkSession, lake: Lake, period: str
) -> None:
    made = windows(usage_of(spark, lake, [date(2026, 3, 2)]), WINDOW_MS, 2)
    assert plan(made).count("Exchange ") == 2
    kept = made.persist()
    kept.count()
    shown = plan(periods(kept, PERIODS[period], 10))
    kept.unpersist()
    outer = after_what_is_kept(shown)
    assert (outer.count("InMemoryRelation "), outer.count("Exchange ")) == (3, 0)
    assert not [name for name in FORBIDDEN if name in shown]


def test_the_rollup_plan_reads_only_the_needed_days_and_columns(spark: SparkSession, lake: Lake) -> None:
    shown = plan(windows(usage_of(spark, lake, [date(2026, 3, 2), date(2026, 3, 3)]), WINDOW_MS, 2))
    assert re.search(r"PartitionFilters: \[day#\d+ IN \(2026-03-02,2026-03-03\)\]", shown)
    (read,) = re.findall(r"ReadSchema: struct<(.*)", shown)
    columns = set(tables.USAGE_RECORD.names)
    assert {name for name in columns if f"{name}:" in read} == columns - {"version", "instance"}
    assert shown.count("FileScan") == 1


def test_the_rollup_reads_only_the_files_of_its_day(spark: SparkSession, lake: Lake) -> None:
    names = usage_of(spark, lake, [date(2026, 3, 2)]).select(sql.input_file_name().alias("file"))
    (row,) = names.collect()
    assert "day=2026-03-02" in row.file


def test_the_rollup_lists_files_without_reading_them(spark: SparkSession, lake: Lake) -> None:
    found = files(spark, lake)
    assert found is not None
    shown = plan(
        found.where(sql.col("day") == sql.lit(date(2026, 3, 2))).select("day", "batch", "path", "length")
    )
    assert "FileScan binaryFile" in shown
    assert "content" not in shown
    assert re.search(r"PartitionFilters: \[.*day#\d+ = 2026-03-02", shown)


def test_the_rollup_spreads_an_entity_with_most_records_over_tasks(spark: SparkSession) -> None:
    """The first shuffle spreads the records over tasks; the second has only one row per window."""
    count, tasks, brokers = 60_000, 8, 6
    client = sql.when(sql.col("id") % 10 == 0, sql.concat(sql.lit("c"), sql.col("id") % 5000)).otherwise(
        "hot"
    )
    given = {
        "time_ms": sql.lit(FIRST_MS) + sql.col("id") % 3600 * 1000,
        "broker": sql.col("id") % brokers,
        "user": sql.lit("u"),
        "client_id": client,
        "requests": sql.lit(1),
    }
    usage = spark.range(count).select(
        *(
            given.get(field.name, sql.lit(None)).cast(field.dataType).alias(field.name)
            for field in tables.USAGE
        )
    )
    first = by_time(usage, WINDOW_MS, tasks).groupBy(sql.spark_partition_id()).count()
    assert max(row["count"] for row in first.collect()) < 2 * count / tasks
    hot = windows(usage, WINDOW_MS, tasks).where("client_id = 'hot' and level = 0")
    assert 0 < hot.count() <= 360 * brokers < count * 0.9 / 20
