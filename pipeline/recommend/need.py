"""Compute the usage of each entity and quota from the hours of the roll-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as sql

from weir.pipeline import tables
from weir.pipeline.lake import Lake
from weir.pipeline.recommend.plan import ANONYMOUS, AUTO, PERCENTILES, Plan, moment
from weir.quotas.table.bounded_names import OVERFLOW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAMES: Final = ("user", "client_id")
ENTITY: Final = (*NAMES, "client_id_prefix")


def hours(spark: SparkSession, lake: Lake, plan: Plan) -> DataFrame:
    """Return the rows of the hourly roll-up (`tables.ROLLUP`) for the days in `plan.days`: rows of users, of
    client-ids, and of pairs of both.
    """
    rows = tables.read(spark, lake.rollup("hour"), tables.ROLLUP)
    if plan.days is None:
        return rows
    first, last = plan.days
    return rows.where(sql.col("day").between(sql.lit(first), sql.lit(last)))


class Span(NamedTuple):
    """The time that the roll-up covers for one kind of entity (user, client-id, or pair of both): number of
    its rows, beginning and end (ms).
    """

    hours: int = 0
    first_ms: int = 0
    end_ms: int = 0

    def __str__(self) -> str:
        """Return the time as text: `BEGINNING to END`, both in UTC."""
        return f"{moment(self.first_ms)} to {moment(self.end_ms)}"


def looked_at(rows: DataFrame, plan: Plan) -> tuple[str, Span]:
    """Return the level of the recommendation (`user`, `client-id` or the pair of both), and the time that its
    hourly rows cover. With `AUTO`, the level is client-id if no user is authenticated, because then only
    client-ids distinguish clients; else the pair.
    """
    named = sql.when(sql.col("user") != OVERFLOW, sql.col("user"))  # any user may be in the overflow entity
    each = rows.groupBy("level").agg(
        sql.count(sql.lit(1)),
        sql.min("start_ms"),
        sql.max(sql.col("start_ms") + sql.col("seconds") * 1000),
        sql.min(named),
        sql.max(named),
    )
    found = {level: others for level, *others in each.collect()}  # a row per level
    level = plan.level
    if level == AUTO:
        users = {*found["user"][3:]} if "user" in found else set()
        level = "client-id" if users == {ANONYMOUS} else "user-client-id"
    return level, Span(*found[level][:3]) if level in found else Span()


def by_quota(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return one row per entity, hour and quota: `used` (the percentile of the rate that the plan chose, null
    if 0) and `peak`, both in the quota's unit, and `throttled_s`, the throttled time (s).
    """
    statistic = PERCENTILES[plan.percentile]
    quotas = sql.array(*[_of_quota(quota.value, statistic) for quota in plan.quotas])
    return rows.select(*NAMES, "start_ms", "busiest_broker", "active_s", sql.inline(quotas))


def _of_quota(quota: str, statistic: str) -> Column:
    return sql.struct(
        sql.lit(quota).alias("quota"),
        sql.nullif(sql.col(f"{quota}.{statistic}"), sql.lit(0.0)).alias("used"),
        sql.coalesce(f"{quota}.max", sql.lit(0.0)).alias("peak"),
        sql.coalesce(f"throttled_s.{quota}", sql.lit(0.0)).alias("throttled_s"),
    )


def unresolved(rows: DataFrame) -> DataFrame:
    """Return the rows with the columns of `current.resolved`, but without limits, for a run without a current
    quota file.
    """
    return rows.select(
        "*",
        sql.lit(None).cast("double").alias("current"),
        sql.lit(False).alias("alone"),
        sql.lit(False).alias("named"),
        sql.lit(None).cast("string").alias("client_id_prefix"),
        sql.lit(1).cast("long").alias("members"),
    )


def shared(rows: DataFrame, level: str) -> DataFrame:
    """Return the rows of client-ids that have budgets of their own unchanged, and one row for each prefix,
    quota and hour in place of the rows of the client-ids with this prefix, which share one budget. Users stay
    apart if `level` contains users.

    The rates of a prefix are the sums of its client-ids' rates: an upper bound, because the client-ids may
    have had their highest rates at different times.
    """
    own = rows.where(sql.col("client_id_prefix").isNull())
    pots = rows.where(sql.col("client_id_prefix").isNotNull())
    user = sql.col("user") if "user" in level else sql.lit(None).cast("string")
    summed = pots.groupBy(user.alias("user"), "client_id_prefix", "quota", "start_ms").agg(
        sql.lit(None).cast("string").alias("client_id"),
        sql.max(sql.struct("used", "busiest_broker"))["busiest_broker"].alias("busiest_broker"),
        *(sql.sum(name).alias(name) for name in ("active_s", "used", "peak", "throttled_s")),
        sql.max("current").alias("current"),
        *(sql.bool_and(name).alias(name) for name in ("alone", "named")),
        sql.count(sql.lit(1)).alias("members"),
    )
    return own.unionByName(summed)


def needs(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return one row per entity and quota: `used` and `peak` in the quota's unit, `at_ms` and `broker` of the
    busiest hour, and the columns that flags and reasons need.
    """
    busiest = sql.max(sql.struct("used", "start_ms", "busiest_broker", "throttled_s"))
    used = (
        sql.max("used")
        if plan.hours_percentile == 100
        else sql.percentile("used", plan.hours_percentile / 100)
    )
    found = rows.groupBy(*ENTITY, "quota").agg(
        sql.coalesce(used, sql.lit(0.0)).alias("used"),
        busiest.alias("busiest"),
        sql.max("peak").alias("peak"),
        sql.count(sql.lit(1)).alias("hours"),
        sql.count("used").alias("hours_used"),
        sql.min("start_ms").alias("first_ms"),
        sql.sum("active_s").alias("active_s"),
        sql.sum("throttled_s").alias("throttled_s"),
        sql.max("current").alias("current"),
        *(sql.bool_and(name).alias(name) for name in ("alone", "named")),
        sql.max("members").alias("members"),
    )
    return found.select(
        "*",
        sql.col("busiest.start_ms").alias("at_ms"),
        sql.col("busiest.busiest_broker").alias("broker"),
        sql.col("busiest.throttled_s").alias("throttled_at_peak_s"),
        (
            (sql.col("hours") < plan.min_active_hours)
            & ~sql.col("named")
            & sql.col("client_id_prefix").isNull()
        ).alias("is_one_off"),
    ).drop("busiest")
