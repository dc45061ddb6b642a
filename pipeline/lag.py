"""The newest data of the tables, which show how far the lake is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from weir.pipeline import tables
from weir.pipeline.lake import Lake, read
from weir.pipeline.rollup.columns import HOUR_S, ROLLUP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def newest_records(spark: SparkSession, lake: Lake) -> dict[str, float]:
    """Return the Unix time (s) of the newest usage record of each cluster."""
    return _newest(read(spark, lake.usage, tables.USAGE), "time_ms")


def newest_hours(spark: SparkSession, lake: Lake) -> dict[str, float]:
    """Return the Unix time (s) at which the newest rolled-up hour of each cluster began."""
    rows = read(spark, lake.rollup, ROLLUP)
    return _newest(rows.where(fn.col("seconds") == HOUR_S), "start_ms")


def _newest(rows: DataFrame, time_ms: str) -> dict[str, float]:
    """Return the largest time of each cluster, in s. Only the newest day of each cluster is read."""
    days = {
        row["cluster"]: row["day"]
        for row in rows.groupBy("cluster").agg(fn.max("day").alias("day")).collect()
    }
    found = {}
    for cluster, day in days.items():
        of_day = rows.where((fn.col("cluster") == cluster) & (fn.col("day") == day))
        (row,) = of_day.agg(fn.max(time_ms).alias("newest")).collect()
        found[cluster] = row["newest"] / 1000
    return found
