"""`weir pipeline maintain`: rejected lines are taken in again, old rows deleted, files compacted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.usage_files import NOON_MS, clients, usage
from weir.pipeline import lake as delta
from weir.pipeline import tables
from weir.pipeline.ingest.batch import take
from weir.pipeline.ingest.parse import DAY_MS, LINE_MAX, SOURCE, USAGE, parsed
from weir.pipeline.lake import Lake, read
from weir.pipeline.maintain import maintain
from weir.pipeline.rollup.job import rollup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

pytestmark = pytest.mark.spark


def lines(spark: SparkSession, taken_ms: int, *values: bytes) -> DataFrame:
    rows = [("here", bytearray(value), taken_ms) for value in values]
    return parsed(spark.createDataFrame(rows, SOURCE), USAGE, files=False)


def test_rejected_lines_that_are_valid_by_now_are_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ahead = usage(NOON_MS + 2 * DAY_MS, "ahead")
    rejected = lines(spark, NOON_MS, ahead, b"never", usage(NOON_MS, "a"))
    assert take(rejected, lake, USAGE, "east", "stream", 0).rejected == 2
    assert take(lines(spark, NOON_MS, ahead), lake, USAGE, "west", "stream of west", 0).rejected == 1
    assert maintain(spark, lake, NOON_MS + 2 * DAY_MS).wrote == {"usage records": 2, "trace records": 0}
    assert clients(spark, lake.usage) == Counter({"a": 1, "ahead": 2})
    (row,) = read(spark, lake.rejected, tables.REJECTED).collect()
    assert (row.line, row.cluster, row.taken_ms) == ("never", "east", NOON_MS)


def test_lines_that_ingest_rejects_while_maintain_runs_stay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, save = Lake(str(tmp_path)), delta._save
    ahead = usage(NOON_MS + 2 * DAY_MS, "ahead")
    take(lines(spark, NOON_MS, ahead, b"\xff" * LINE_MAX), lake, USAGE, "east", "stream", 0)
    meanwhile = [b"meanwhile"]

    def slow_save(writer: DataFrameWriter, path: str) -> None:
        save(writer, path)
        if meanwhile:
            take(lines(spark, NOON_MS, meanwhile.pop()), lake, USAGE, "east", "other stream", 0)

    monkeypatch.setattr(delta, "_save", slow_save)
    maintain(spark, lake, NOON_MS + 2 * DAY_MS)
    assert clients(spark, lake.usage) == Counter(["ahead"])
    rows = read(spark, lake.rejected, tables.REJECTED).orderBy("line").collect()
    assert [row.line[:9] for row in rows] == [r"\xff\xff\xff"[:9], "meanwhile"]


def test_maintain_deletes_old_days_and_compacts_the_others(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    for batch in range(3):
        new, old = usage(NOON_MS + batch, f"new {batch}"), usage(NOON_MS - 10 * DAY_MS, f"old {batch}")
        take(lines(spark, NOON_MS, new, old), lake, USAGE, "default", "stream", batch)
    take(lines(spark, NOON_MS - 10 * DAY_MS, b"old and bad"), lake, USAGE, "default", "stream", 3)
    take(lines(spark, NOON_MS, b"bad"), lake, USAGE, "default", "stream", 4)
    rollup(spark, lake)
    outcome = maintain(spark, lake, NOON_MS, keep_days=5, keep_rollup_days=90)
    assert outcome.notes[0] == f"{lake.usage}: 3 rows older than 5 days were deleted"
    assert f"{lake.usage}: 3 files became 1" in outcome.notes
    assert f"{lake.rollup}: 0 rows older than 90 days were deleted" in outcome.notes  # trends need them
    assert clients(spark, lake.usage) == Counter(f"new {batch}" for batch in range(3))
    assert [row.line for row in read(spark, lake.rejected, tables.REJECTED).collect()] == ["bad"]
