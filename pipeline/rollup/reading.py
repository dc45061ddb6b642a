"""Queries of roll-ups for other jobs: usage of entities by period, over all brokers or at each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from weir.pipeline import lake as delta
from weir.pipeline.rollup.columns import AMOUNTS, ENTITY, PERIODS, QUOTAS, RATE, RATES, ROLLUP

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import Column, DataFrame, SparkSession

    from weir.pipeline.lake import Lake

PERIOD: Final = (*ENTITY, "start_ms")
"""Columns that identify a period of an entity."""
_BY_QUOTA: Final = ("throttle_ms", "violations", "throttled_s")


def rows(
    spark: SparkSession,
    lake: Lake,
    period: str = "hour",
    *,
    level: str | None = None,
    cluster: str | None = None,
    days: tuple[date, date] | None = None,
    version: int | None = None,
) -> DataFrame:
    """Return the roll-ups (`columns.ROLLUP`) by `period` (hour or day), of one level and cluster and between
    the first and last of `days`; None selects all. Spark opens no files of other periods, days or clusters.
    `version` selects a version of the table; None selects the latest.

    A sum over entities is correct only for one level, because each record counts at every level.
    """
    found = delta.read(spark, lake.rollup, ROLLUP, version).where(fn.col("seconds") == PERIODS[period])
    for name, wanted in (("level", level), ("cluster", cluster)):
        if wanted is not None:
            found = found.where(fn.col(name) == wanted)
    return found if days is None else found.where(fn.col("day").between(*map(fn.lit, days)))


def by_entity(rolled: DataFrame) -> DataFrame:
    """Return one row per entity and period, over all brokers: `PERIOD`, `seconds`, `day`, sums of `AMOUNTS`,
    `throttle_ms` and `violations` (structs by quota, not null), and

    - `brokers`: the number of brokers with requests, `busiest_broker` (by bytes, then requests, then the
      lowest id) and `skew`: the busiest broker's bytes / the mean over these brokers, 1 without bytes;
    - `active_s` and `throttled_s` (struct by quota): the longest time (s) at one broker.
    """
    bytes_ = fn.col("bytes_in") + fn.col("bytes_out")
    has_requests = fn.col("requests") > 0
    order = fn.struct(bytes_.alias("bytes"), "requests", (-fn.col("broker")).alias("nearness"))
    summed = rolled.groupBy(*PERIOD, "seconds", "day").agg(
        *(fn.sum(name).alias(name) for name in AMOUNTS),
        fn.max("active_s").alias("active_s"),
        _by_quota("throttle_ms", fn.sum),
        _by_quota("violations", fn.sum),
        _by_quota("throttled_s", fn.max),
        fn.count_if(has_requests).alias("brokers"),
        fn.avg(fn.when(has_requests, bytes_)).alias("mean"),
        fn.max(order).alias("busiest"),
    )
    skew = fn.when(fn.col("mean") > 0, fn.col("busiest.bytes") / fn.col("mean")).otherwise(1.0)
    named = summed.withColumns({"busiest_broker": -fn.col("busiest.nearness"), "skew": skew})
    return named.drop("busiest", "mean")


def _by_quota(name: str, summary: Callable[[Column], Column]) -> Column:
    """Return the struct `name` with the summary of each of its fields; a null struct counts as zeros."""
    fields = (fn.coalesce(summary(fn.col(f"{name}.{quota}")), fn.lit(0)).alias(quota) for quota in QUOTAS)
    return fn.struct(*fields).alias(name)


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
        *(_or_0(f"{quota}.{name}").alias(name) for name in RATE.names),
        *(_or_0(f"{name}.{quota}").alias(name) for name in _BY_QUOTA),
    )


def _or_0(name: str) -> Column:
    return fn.coalesce(name, fn.lit(0))


def coincident(rates_of_one_level: DataFrame, rate: Column) -> DataFrame:
    """Return one row per cluster, broker, period and quota, with `entities`, the number of entities, and
    `load`, the sum of `rate` over the entities in the same period.

    `rates_of_one_level` is the result of `rates` for one level, perhaps with further columns; `rate` is a
    column of it, such as `mean`, or the lesser of a percentile and a proposed limit. The maximum of `load`
    over the periods is the coincident peak: no more than the sum of the entities' own peaks.
    """
    return rates_of_one_level.groupBy("cluster", "broker", "start_ms", "quota").agg(
        fn.sum(rate).alias("load"), fn.count(fn.lit(1)).alias("entities")
    )
