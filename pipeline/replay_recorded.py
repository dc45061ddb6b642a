"""What was: the throttle times in the records, in the same columns as a replay's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from pipeline.replay_candidates import KEYS, RECORDED
from pipeline.replay_charges import MUTATIONS, who
from pipeline.tables import REPLAY
from quotas.replay_hours import HOUR_MS
from quotas.request_time import US_PER_PERCENT
from usage.groups import Group

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CLIENT: Final = ("quota", "user", "client_id", "broker")


def of_charges(charges: DataFrame) -> DataFrame:
    """From the charges of traces (`replay_charges.of_traces`)."""
    return _hours(
        charges.select(
            *CLIENT,
            "instance",
            (F.col("at_ms") + F.col("service_ms")).alias("from_ms"),
            F.lit(1).cast("long").alias("charges"),
            F.col("value").alias("charged"),
            (F.col("recorded_ms") > 0).cast("long").alias("violations"),
            F.col("recorded_ms").alias("throttle_ms"),
            F.col("recorded_ms").alias("wait_ms"),
        )
    )


def of_usage(records: DataFrame) -> DataFrame:
    """From usage records, which do not say when within its interval a wait began: it is taken to be at the
    start, and all waits of a record to be as long, on its sessions side by side.
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
    spread = records.select(*who(), F.col("time_ms").alias("from_ms"), F.inline(told))
    side_by_side = F.greatest(F.least("sessions", "violations"), F.lit(1))
    return _hours(
        spread.withColumns(
            {
                "broker": F.when(F.col("quota") != MUTATIONS, F.col("on_broker")),
                "wait_ms": F.ceil(F.col("throttle_ms") / side_by_side),
            }
        )
    )


def _of_quota(quota: str, charged: Column) -> Column:
    throttle = F.coalesce(F.col("throttle_ms")[quota], F.lit(0)).cast("long")
    violations = F.coalesce(F.col("violations")[quota], F.lit(0)).cast("long")
    fields = F.struct(
        F.lit(quota).alias("quota"),
        F.coalesce("requests", F.lit(0)).cast("long").alias("charges"),
        F.coalesce("sessions", F.lit(0)).cast("long").alias("sessions"),
        F.coalesce(charged, F.lit(0)).cast("double").alias("charged"),
        violations.alias("violations"),
        throttle.alias("throttle_ms"),
    )
    return F.when((charged > 0) | (throttle > 0) | (violations > 0), fields)


def _hours(waits: DataFrame) -> DataFrame:
    """As `tables.REPLAY`; `wait_ms` long, from `from_ms` on, somebody waited."""
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
                "given_up": F.lit(0),
            }.get(field.name, F.col(field.name))
            .cast(field.dataType)
            .alias(field.name)
            for field in REPLAY.fields
        )
    )


def _throttled(waits: DataFrame) -> DataFrame:
    """The time in each hour during which somebody waited; where waits overlap, it counts once."""
    stop = F.col("from_ms") + F.col("wait_ms")
    earlier = (
        Window.partitionBy("instance", *CLIENT)
        .orderBy("from_ms")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow - 1)
    )
    spans = waits.where(F.col("wait_ms") > 0).select(
        *CLIENT,
        F.greatest("from_ms", F.coalesce(F.max(stop).over(earlier), F.lit(0))).alias("begin"),
        stop.alias("end"),
    )
    hours = F.explode(F.sequence(_hour(F.col("begin")), _hour(F.col("end") - 1), F.lit(HOUR_MS)))
    of_hours = spans.where(F.col("end") > F.col("begin")).withColumn("start_ms", hours)
    part = F.least("end", F.col("start_ms") + HOUR_MS) - F.greatest("begin", "start_ms")
    return of_hours.groupBy(*CLIENT, "start_ms").agg((F.sum(part) / 1000).alias("throttled_s"))


def _hour(when_ms: Column) -> Column:
    return when_ms - F.pmod(when_ms, F.lit(HOUR_MS).cast("long"))
