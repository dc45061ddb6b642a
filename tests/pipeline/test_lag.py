"""The newest data of the tables, which the metrics of the jobs tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.usage_files import NOON_MS, put, usage
from weir.pipeline.ingest.job import ingest
from weir.pipeline.ingest.sources import Directory
from weir.pipeline.lake import Lake, newest, read
from weir.pipeline.rollup import reading
from weir.pipeline.rollup.job import rollup
from weir.pipeline.tables import USAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DAY_MS = 86_400_000


def newest_records(spark: SparkSession, lake: Lake) -> dict[str, float]:
    return newest(read(spark, lake.usage, USAGE), "time_ms")


def newest_hours(spark: SparkSession, lake: Lake) -> dict[str, float]:
    return newest(reading.rows(spark, lake), "start_ms")


def test_newest_record_and_newest_hour_are_told_for_each_cluster(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    for cluster, last_ms in (("east", NOON_MS + 90_000), ("west", NOON_MS - DAY_MS)):
        put(tmp_path / cluster, "usage-weir-1-00000000.jsonl", usage(NOON_MS - 2 * DAY_MS), usage(last_ms))
        ingest(spark, lake, Directory(str(tmp_path / cluster)), kinds=("usage",), cluster=cluster)
    assert newest_hours(spark, lake) == {}
    rollup(spark, lake)
    noon_s = NOON_MS / 1000
    assert newest_records(spark, lake) == {"east": noon_s + 90, "west": noon_s - 86_400}
    assert newest_hours(spark, lake) == {"east": noon_s, "west": noon_s - 86_400}


def test_a_lake_without_tables_has_no_newest_data(spark: SparkSession, tmp_path: Path) -> None:
    assert newest_records(spark, Lake(str(tmp_path))) == newest_hours(spark, Lake(str(tmp_path))) == {}
