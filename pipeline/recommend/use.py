"""Query the roll-up for a recommendation: its span, its entities, and their use by quota, broker and hour.

Every query reads the same version of the roll-up's table, so a roll-up that runs meanwhile changes nothing.
Spark aggregates; the results, at most some rows per entity, are polars frames on the driver.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema

from weir.pipeline import arrow
from weir.pipeline.recommend.need import NEED, POT, needs
from weir.pipeline.recommend.plan import ANONYMOUS, AUTO, PAIRS, PERCENTILES, RecommendationPlan, moment
from weir.pipeline.rollup import reading
from weir.pipeline.tables import CLIENT
from weir.quotas.table.bounded_names import OVERFLOW

_ROWS_PER_TASK: Final = 500_000


class CoveredTime(NamedTuple):
    """The time that the roll-up covers for one kind of entity (user, client-id, or pair of both): number of
    its rows, beginning and end (ms).
    """

    rows: int = 0
    first_ms: int = 0
    end_ms: int = 0

    def __str__(self) -> str:
        """Return the time as text: `BEGINNING to END`, both in UTC."""
        return f"{moment(self.first_ms)} to {moment(self.end_ms)}"


def looked_at(rows: DataFrame, plan: RecommendationPlan) -> tuple[str, CoveredTime]:
    """Return the level of the recommendation (`user`, `client-id` or the pair of both), and the time that its
    hourly rows cover. With `AUTO`, the level is client-id if no user is authenticated, because then only
    client-ids distinguish clients; else the pair.
    """
    named = fn.when(fn.col("user") != OVERFLOW, fn.col("user"))  # any user may be in the overflow entity
    each = rows.groupBy("level").agg(
        fn.count(fn.lit(1)),
        fn.min("start_ms"),
        fn.max(fn.col("start_ms") + fn.col("seconds") * 1000),
        fn.min(named),
        fn.max(named),
    )
    found = {level: others for level, *others in each.collect()}  # a row per level
    level = plan.level
    if level == AUTO:
        users = {*found["user"][3:]} if "user" in found else set()
        level = "client-id" if users == {ANONYMOUS} else PAIRS
    return level, CoveredTime(*found[level][:3]) if level in found else CoveredTime()


def of_level(rows: DataFrame, level: str) -> DataFrame:
    """Return the rows of a level. A client of a user without a client-id gets the client-id null, because its
    entry is that of the user.
    """
    found = rows.where(fn.col("level") == level)
    if level != PAIRS:
        return found
    return found.withColumn("client_id", fn.nullif("client_id", fn.lit("")))


def entities(rows: DataFrame) -> pl.DataFrame:
    """Return one row per entity: `CLIENT`, `hours` (number of hours with records) and `first_ms`."""
    found = rows.groupBy(*CLIENT).agg(
        fn.count_distinct("start_ms").alias("hours"), fn.min("start_ms").alias("first_ms")
    )
    return arrow.collected(found)


def hours(rows: DataFrame, plan: RecommendationPlan, members: pl.DataFrame) -> DataFrame:
    """Return the use of each budget by quota, broker and hour: the columns that `need.needs` reads, and
    `mean`. `members` has the client-ids that share a prefix's quota: `CLIENT`, `quota`, `prefix`.

    The rates of a prefix are the sums of its client-ids' rates in the same hour: an upper bound, because the
    client-ids may have had their highest rates at different times.
    """
    own = _own_hours(rows, plan)
    return own if members.is_empty() else _shared(own, members, own["user"])


def hours_of_groups(rows: DataFrame, plan: RecommendationPlan, members: pl.DataFrame) -> DataFrame:
    """Return the rows of `hours` for groups. Their names are in the column `client_id_prefix`, and in
    `prefix` of `members`.
    """
    shared = _shared(_own_hours(rows, plan), members, fn.lit(None).cast("string").alias("user"))
    return shared.where(fn.col("client_id_prefix").isNotNull())


def _own_hours(rows: DataFrame, plan: RecommendationPlan) -> DataFrame:
    statistic = fn.col(PERCENTILES[plan.percentile]).alias("used")
    quotas = [quota.value for quota in plan.quotas]
    each = reading.rates(rows).where(fn.col("quota").isin(quotas))
    return each.select(
        *CLIENT,
        fn.lit(None).cast("string").alias("client_id_prefix"),
        *("quota", "broker", "start_ms", "day"),
        *(statistic, "p95", "max", "mean", "active_s"),
        fn.col("throttled_s").cast("double").alias("throttled_s"),
        fn.lit(1).cast("long").alias("members"),
    )


def _shared(own: DataFrame, members: pl.DataFrame, user: Column) -> DataFrame:
    """Add up the rows of client-ids that share a prefix's quota, for each `user`."""
    asked = fn.broadcast(arrow.in_spark(members, own.sparkSession))
    same = [own[name].eqNullSafe(asked[name]) for name in (*CLIENT, "quota")]
    by = (
        user,
        fn.when(asked["prefix"].isNull(), own["client_id"]).alias("client_id"),
        asked["prefix"].alias("client_id_prefix"),
        *(own[name] for name in ("quota", "broker", "start_ms", "day")),
    )
    return (
        own.join(asked, same, "left")
        .groupBy(*by)
        .agg(
            *(fn.sum(name).alias(name) for name in ("used", "p95", "max", "mean", "members")),
            *(fn.max(name).alias(name) for name in ("active_s", "throttled_s")),
        )
    )


def needed(hours: DataFrame, plan: RecommendationPlan, span: CoveredTime) -> pl.DataFrame:
    """Return `need.needs` of the rows of `hours`. Each task of Spark computes those of some budgets."""
    columns = from_arrow_schema(arrow.table(pl.DataFrame(schema=NEED)).schema)
    tasks, percentile = span.rows * len(plan.quotas) // _ROWS_PER_TASK + 1, plan.hours_percentile

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in arrow.frames(batches, sys.maxsize):
            yield from arrow.batches(needs(rows, percentile), columns)

    return arrow.collected(hours.drop("mean").repartition(tasks, *POT).mapInArrow(compute, columns))
