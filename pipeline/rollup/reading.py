"""Queries of roll-ups for other jobs: usage of entities by period and broker."""

from __future__ import annotations

from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from weir.pipeline import lake as delta
from weir.pipeline.lake import Lake
from weir.pipeline.rollup.columns import ENTITY, PERIODS, RATE, RATES, ROLLUP

PERIOD: Final = (*ENTITY, "start_ms")
"""Columns that identify a period of an entity."""
_BY_QUOTA: Final = ("throttle_ms", "violations", "throttled_s")


def rows(
    spark: SparkSession,
    lake: Lake,
    period: str = "hour",
    *,
    cluster: str | None = None,
    days: tuple[date, date] | None = None,
    version: int | None = None,
) -> DataFrame:
    """Return the roll-ups (`columns.ROLLUP`) by `period` (hour or day), of one cluster and between the first
    and last of `days`; None selects all. Spark opens no files of other periods, days or clusters. `version`
    selects a version of the table; None selects the latest.

    A sum over entities is correct only for one level, because each record counts at every level.
    """
    found = delta.read(spark, lake.rollup, ROLLUP, version).where(fn.col("seconds") == PERIODS[period])
    if cluster is not None:
        found = found.where(fn.col("cluster") == cluster)
    return found if days is None else found.where(fn.col("day").between(*map(fn.lit, days)))


def rates(rolled: DataFrame) -> DataFrame:
    """Return one row per entity, broker, period and quota with use or throttled time: `PERIOD`, `broker`,
    `seconds`, `day`, `active_s`, and

    - `quota`: the name of one of `columns.RATES`;
    - `mean`: the average rate over the whole period, in the quota's unit;
    - `p50`, `p95`, `p99`, `max`: over the windows with use, in the quota's unit; 0 without use;
    - `throttle_ms`, `violations`, `throttled_s` of the quota.

    Mutations, limited in the whole cluster, are at broker -1.
    """
    each = rolled.select(
        *PERIOD, "broker", "seconds", "day", "active_s", fn.inline(fn.array(*map(_rate, RATES)))
    )
    return each.where((fn.col("max") > 0) | (fn.col("violations") > 0) | (fn.col("throttle_ms") > 0))


def _rate(quota: str) -> Column:
    rate = RATES[quota]
    mean = fn.col(rate.amount) * fn.lit(rate.unit) / fn.col("seconds")
    return fn.struct(
        fn.lit(quota).alias("quota"),
        mean.alias("mean"),
        *(delta.filled(f"{quota}.{name}").alias(name) for name in RATE.names),
        *(delta.filled(f"{name}.{quota}").alias(name) for name in _BY_QUOTA),
    )
