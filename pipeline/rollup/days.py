"""Find the days to roll up: days whose usage files have changed since their last roll-up.

This module only lists directories; it opens no Parquet file.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sql

from weir.pipeline import tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from weir.pipeline.lake import Lake

_KEYS: Final = (tables.DAY, tables.BATCH)


@dataclass(frozen=True, slots=True)
class Source:
    """Usage files of one day: their number, total size (bytes) and a digest of their names, by which changes
    are found.
    """

    day: date
    batches: int
    files: int
    bytes: int
    digest: int
    changed: bool
    """True if the files have changed since the last roll-up, or the day was never rolled up."""


def sources(
    spark: SparkSession, lake: Lake, window_s: int, within: tuple[date, date] | None = None
) -> list[Source]:
    """Return one `Source` per day that has usage, in order of time. `within` is the first and last day to
    consider, None for all; `window_s` is the window length (s) of the roll-up.
    """
    found = files(spark, lake)
    if found is None:
        return []
    if within is not None:
        found = found.where(sql.col("day").between(*map(sql.lit, within)))
    there = found.groupBy("day").agg(
        sql.count_distinct("batch").alias("batches"),
        sql.count("path").alias("files"),
        sql.sum("length").alias("bytes"),
        sql.bit_xor(sql.xxhash64("path")).alias("digest"),
    )
    before = tables.read(spark, lake.rolled, tables.ROLLED).select(
        "day", *(sql.col(name).alias(f"old_{name}") for name in ("files", "digest", "window_s"))
    )
    same = _same("files") & _same("digest") & (sql.col("old_window_s") == window_s)
    compared = there.join(before, "day", "left").withColumn("changed", ~sql.coalesce(same, sql.lit(False)))
    rows = compared.select("day", "batches", "files", "bytes", "digest", "changed").orderBy("day").collect()
    return [Source(**row.asDict()) for row in rows]


def files(spark: SparkSession, lake: Lake) -> DataFrame | None:
    """Return one row per usage file: `path`, `length` (bytes), `day` and `batch`. Return None before the
    first ingest.
    """
    try:
        found = spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet").load(lake.usage)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    if tables.DAY.name not in found.columns:  # an empty directory
        return None
    return found.select("path", "length", *(sql.col(key.name).cast(key.dataType) for key in _KEYS))


def _same(name: str) -> Column:
    return sql.col(name) == sql.col(f"old_{name}")
