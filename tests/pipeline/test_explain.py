"""Spark's plan of the roll-up, which shows operations that would be slow at scale."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.pipeline.usage_rows import DAY_MS, ingest, record
from weir.pipeline import tables
from weir.pipeline.lake import Lake, read
from weir.pipeline.rollup import reading
from weir.pipeline.rollup.compute import rolled
from weir.pipeline.rollup.job import Day, condition, rollup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FORBIDDEN: Final = ("CartesianProduct", "BroadcastNestedLoopJoin", "BatchEvalPython", "MapInPandas")


def plan(rows: DataFrame) -> str:
    conf, name, out = rows.sparkSession.conf, "spark.sql.maxMetadataStringLength", io.StringIO()
    before = conf.get(name)
    conf.set(name, "10000")
    with redirect_stdout(out):
        rows.explain()
    conf.set(name, str(before))
    return out.getvalue()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(day * DAY_MS) for day in range(3)])
    return lake


def test_the_rollup_plan_reads_only_the_needed_days_and_columns_and_shuffles_once(
    spark: SparkSession, lake: Lake
) -> None:
    chosen = condition([Day("default", date(2026, 3, 2)), Day("default", date(2026, 3, 3))])
    shown = plan(rolled(read(spark, lake.usage, tables.USAGE).where(chosen), 10, 2, 1))
    assert shown.count("Exchange ") == 1
    assert shown.count("FileScan") == 1
    assert not [name for name in FORBIDDEN if name in shown]
    assert re.search(r"PartitionFilters: \[.*day#\d+ IN \(2026-03-02,2026-03-03\)", shown)
    (columns,) = re.findall(r"ReadSchema: struct<(.*)", shown)
    unneeded = {"version", "instance", "group", "interval_ms", "sessions"}
    assert {name for name in tables.USAGE_RECORD.names if f"{name}:" in columns} & unneeded == set()


def test_readers_of_hours_open_no_files_of_other_periods_and_days(spark: SparkSession, lake: Lake) -> None:
    rollup(spark, lake)
    day = date(2026, 3, 2)
    rows = reading.rows(spark, lake, "hour", days=(day, day))
    files = {Path(file).parent for file in rows.inputFiles()}
    assert {(path.parent.name, path.name) for path in files} == {("seconds=3600", "day=2026-03-02")}
