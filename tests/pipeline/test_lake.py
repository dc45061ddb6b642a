"""The Delta tables: a write is one version, and is made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType, StructField, StructType

from weir.pipeline.lake import append_once, latest, read, replace, sql_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = StructType(
    [*(StructField(name, StringType()) for name in ("cluster", "day")), StructField("n", LongType())]
)


def rows(spark: SparkSession, *values: tuple[str, str, int]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def content(spark: SparkSession, path: str) -> list[tuple[str, str, int]]:
    return sorted((row.cluster, row.day, row.n) for row in read(spark, path, COLUMNS).collect())


def test_a_missing_table_reads_as_empty(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        assert read(spark, str(tmp_path / name), COLUMNS).collect() == []


def test_rows_are_appended_once_per_version_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "ta`ble")
    assert append_once(rows(spark, ("a", "d", 1), ("a", "d", 2)), path, "stream", 0) == 2
    assert append_once(rows(spark, ("a", "d", 3)), path, "stream", 1) == 1
    assert append_once(rows(spark, ("a", "d", 4)), path, "other stream", 0) == 1
    assert append_once(rows(spark, ("a", "d", 9), ("a", "d", 9)), path, "stream", 1) == 1
    assert append_once(rows(spark, ("a", "d", 9)), path, "stream", 0) == 2
    assert content(spark, path) == [("a", "d", number) for number in (1, 2, 3, 4)]


def test_replaced_rows_of_a_day_leave_other_days_as_one_version(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    replace(rows(spark, ("a", "mon", 1), ("a", "tue", 2), ("b", "mon", 3)), path)
    replace(rows(spark, ("a", "mon", 4)), path, "cluster = 'a' and day = 'mon'")
    assert content(spark, path) == [("a", "mon", 4), ("a", "tue", 2), ("b", "mon", 3)]
    with pytest.raises(PySparkException):
        replace(rows(spark, ("b", "mon", 5)), path, "cluster = 'a' and day = 'mon'")
    assert content(spark, path)[-1] == ("b", "mon", 3)
    replace(rows(spark), path, "cluster = 'a'")
    assert content(spark, path) == [("b", "mon", 3)]
    assert spark.sql(f"DESCRIBE HISTORY {sql_name(path)}").count() == 3


def test_a_new_column_is_added_and_reads_as_null_in_old_rows(spark: SparkSession, tmp_path: Path) -> None:
    path, wider = str(tmp_path / "table"), StructType([*COLUMNS.fields, StructField("new", LongType())])
    replace(rows(spark, ("a", "mon", 1)), path)
    assert [row.new for row in read(spark, path, wider).collect()] == [None]
    append_once(spark.createDataFrame([("a", "mon", 2, 5)], wider), path, "stream", 0)
    assert {row.n: row.new for row in read(spark, path, wider).collect()} == {1: None, 2: 5}


def test_a_new_field_of_a_column_reads_as_null_in_an_old_table(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    replace(spark.sql("select struct(7 as a) as s union all select null"), path)
    wider = spark.sql("select struct(1 as a, 2 as b) as s")
    assert {row.s for row in read(spark, path, wider.schema).collect()} == {(7, None), None}
    append_once(wider, path, "stream", 0)
    assert {row.s for row in read(spark, path, wider.schema).collect()} == {(7, None), None, (1, 2)}


def test_concurrent_first_writes_of_a_table_are_all_made(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    frames = [rows(spark, ("a", "mon", number)) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        added = pool.map(lambda number: append_once(frames[number], path, f"stream {number}", 0), range(4))
        assert list(added) == [1] * 4
    assert [number for *_key, number in content(spark, path)] == [0, 1, 2, 3]


def test_a_former_version_of_a_table_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    assert latest(spark, path) is None
    replace(rows(spark, ("a", "d", 1)), path)
    version = latest(spark, path)
    replace(rows(spark, ("a", "d", 2)), path)
    assert (version, latest(spark, path)) == (0, 1)
    assert [row.n for row in read(spark, path, COLUMNS, version).collect()] == [1]
