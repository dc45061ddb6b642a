"""Compute a table of the throttle times that Weir recorded, with the columns of a replay, for comparison with
the replays under candidate quota files.

The times are grouped by the budgets that clients use under one of these files; a client without a budget has
rows of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from weir.pipeline.replay.candidates import KEYS, RECORDED
from weir.pipeline.replay.charges import MUTATIONS, client_columns
from weir.pipeline.tables import REPLAY
from weir.quotas.limiters.request_time import US_PER_PERCENT
from weir.quotas.replay_demand import RECORDED as DEMAND_RECORDED
from weir.quotas.replay_hours import HOUR_MS
from weir.usage.groups import Group

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WAITS_PER_RECORD: Final = 100
"""Maximum number of throttle times, one after the other, into which the recorded throttle time of one usage
record is split.
"""
WAIT_MS_MAX: Final = 2**31 - 1
"""Maximum throttle time (ms): the protocol's field has 32 bits."""
CLIENT: Final = ("cluster", "quota", "user", "client_id", "broker")


def of_charges(charges: DataFrame, draws: DataFrame) -> DataFrame:
    """Return the recorded hours (`tables.REPLAY`) from the charges of traces (`charges.of_traces`), grouped
    by budget; `draws` has the budget that each client uses.
    """
    waits = charges.select(
        *CLIENT,
        "instance",
        (F.col("at_ms") + F.col("service_ms")).alias("from_ms"),
        F.lit(1).cast("long").alias("charges"),
        F.col("value").alias("charged"),
        (F.col("recorded_ms") > 0).cast("long").alias("violations"),
        F.col("recorded_ms").alias("throttle_ms"),
    )
    return _hours(_by_budget(waits, draws))


def of_usage(records: DataFrame, draws: DataFrame) -> DataFrame:
    """Return the recorded hours (`tables.REPLAY`) from usage records, grouped by budget; `draws` has the
    budget that each client uses.

    A usage record has only the sum and number of its throttle times; the function assumes that they are
    equally long and evenly spread over the record's interval.
    """
    size, mutations = F.coalesce("charged_bytes", F.lit(0)), F.coalesce("mutations", F.lit(0))
    charged = {
        "producer_byte_rate": F.when(F.col("api") == Group.PRODUCE, size),
        "consumer_byte_rate": F.when(F.col("api") == Group.FETCH, size),
        "request_percentage": F.coalesce("request_time_us", F.lit(0.0)) / US_PER_PERCENT,
        MUTATIONS: mutations,
    }
    of_each = [_of_quota(key.value, charged[key.value]) for key in KEYS]
    told = F.filter(F.array(*of_each), lambda one: one.isNotNull())
    spread = records.select(
        *client_columns(), "interval_ms", F.col("time_ms").alias("from_ms"), F.inline(told)
    )
    in_place = spread.withColumn("broker", F.when(F.col("quota") != MUTATIONS, F.col("on_broker")))
    return _hours(_by_budget(in_place, draws))


def _by_budget(waits: DataFrame, draws: DataFrame) -> DataFrame:
    """Replace `user` and `client_id` of each row by those of the budget that the client uses (`draws`), in
    the form of `tables.REPLAY`. A client without a budget keeps its names.
    """
    joined = waits.join(draws, ["quota", "user", "client_id"], "left")
    limited = F.col("limit").isNotNull()
    prefix = F.when(F.col("of_prefix") != "", F.concat("of_prefix", F.lit("*")))
    return joined.withColumns(
        {
            "user": F.when(limited, F.nullif("of_user", F.lit(""))).otherwise(F.col("user")),
            "client_id": F.when(limited, F.coalesce(prefix, F.nullif("of_client_id", F.lit("")))).otherwise(
                F.col("client_id")
            ),
        }
    )


def _of_quota(quota: str, charged: Column) -> Column:
    throttle = F.coalesce(F.col("throttle_ms")[quota], F.lit(0)).cast("long")
    violations = F.coalesce(F.col("violations")[quota], F.lit(0)).cast("long")
    fields = F.struct(
        F.lit(quota).alias("quota"),
        F.coalesce("requests", F.lit(0)).cast("long").alias("charges"),
        F.coalesce(charged, F.lit(0)).cast("double").alias("charged"),
        violations.alias("violations"),
        throttle.alias("throttle_ms"),
    )
    return F.when((charged > 0) | (throttle > 0) | (violations > 0), fields)


def _hours(waits: DataFrame) -> DataFrame:
    """Sum up charges and recorded throttle times by budget and hour, in the columns of `tables.REPLAY`."""
    hour, violated = _hour(F.col("from_ms")), F.when(F.col("violations") > 0, F.col("from_ms"))
    counts = waits.groupBy(*CLIENT, hour.alias("start_ms")).agg(
        F.sum("charged").alias("charged"),
        F.sum("charges").alias("charges"),
        F.sum("violations").alias("violations"),
        F.sum("throttle_ms").alias("throttle_ms"),
        F.min(violated).alias("first_ms"),
        F.max(violated).alias("last_ms"),
        F.lit(0.0).alias("throttled_s"),
    )
    both = counts.unionByName(_throttled(waits), allowMissingColumns=True)
    summed = both.groupBy(*CLIENT, "start_ms").agg(
        *(
            F.coalesce(F.sum(name), F.lit(0)).alias(name)
            for name in ("charged", "charges", "violations", "throttle_ms", "throttled_s")
        ),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    )
    return summed.select(
        *(
            {
                "candidate": F.lit(RECORDED),
                "limit": F.lit(None),
                "demand": F.lit(DEMAND_RECORDED),
                "throttle_ms_lower": F.col("throttle_ms"),
                "throttle_ms_upper": F.col("throttle_ms"),
                "throttled_s_lower": F.col("throttled_s"),
                "throttled_s_upper": F.col("throttled_s"),
                "given_up": F.lit(0),
            }.get(field.name, F.col(field.name))
            .cast(field.dataType)
            .alias(field.name)
            for field in REPLAY.fields
        )
    )


def _throttled(waits: DataFrame) -> DataFrame:
    """Return the time `throttled_s` (s) of each hour in which at least one client of a budget waited."""
    stop = F.col("from_ms") + F.col("wait_ms")
    earlier = (
        Window.partitionBy("instance", *CLIENT)
        .orderBy("from_ms")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow - 1)
    )
    spans = _single(waits).select(
        *CLIENT,
        F.greatest("from_ms", F.coalesce(F.max(stop).over(earlier), F.lit(0))).alias("begin"),
        stop.alias("end"),
    )
    hours = F.explode(F.sequence(_hour(F.col("begin")), _hour(F.col("end") - 1), F.lit(HOUR_MS)))
    of_hours = spans.where(F.col("end") > F.col("begin")).withColumn("start_ms", hours)
    part = F.least("end", F.col("start_ms") + HOUR_MS) - F.greatest("begin", "start_ms")
    return of_hours.groupBy(*CLIENT, "start_ms").agg((F.sum(part) / 1000).alias("throttled_s"))


def _single(waits: DataFrame) -> DataFrame:
    """Return one row per throttle time; the throttle begins at `from_ms` and lasts `wait_ms`."""
    violated = waits.where((F.col("throttle_ms") > 0) & (F.col("violations") > 0))
    wait_ms = F.least(F.ceil(F.col("throttle_ms") / F.col("violations")), F.lit(WAIT_MS_MAX))
    if "interval_ms" not in waits.columns:
        return violated.withColumn("wait_ms", wait_ms)
    number = F.least("violations", F.lit(WAITS_PER_RECORD))
    from_ms = F.col("from_ms") + F.floor((F.col("one") + 0.5) * F.col("interval_ms") / number)
    each = violated.withColumn("one", F.explode(F.sequence(F.lit(0), number - 1)))
    return each.withColumns({"from_ms": from_ms, "wait_ms": wait_ms})


def _hour(when_ms: Column) -> Column:
    return when_ms - F.pmod(when_ms, F.lit(HOUR_MS).cast("long"))
