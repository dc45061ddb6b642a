"""Compose the reason of a proposal: one line with its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from weir.pipeline.recommend.capacity import floor
from weir.pipeline.recommend.plan import BYTES, PERCENTILES, Plan
from weir.quotas import QuotaKey

if TYPE_CHECKING:
    from pyspark.sql import Column

_MUTATIONS: Final = QuotaKey.CONTROLLER_MUTATION_RATE.value
_SIZES: Final = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def reason(plan: Plan, factors: Mapping[QuotaKey, float]) -> Column:
    """Return the column with a proposal's reason, such as `p99 of the busiest hour, 2026-11-20 14:00 UTC,
    busiest on broker 3: 1.20 MB/s; x 1.5 headroom`.
    """
    used = sql.concat(_statistic(plan), sql.lit(": "), readable(sql.col("used")), sql.lit(_arithmetic(plan)))
    return sql.concat(
        sql.when(sql.col("used") > 0, used).otherwise("no use"),
        _bound(plan, factors),
        sql.when(sql.col("current").isNull(), "").otherwise(
            sql.concat(
                sql.lit("; now "),
                readable(sql.col("current")),
                sql.when(sql.col("alone"), "").otherwise(" shared with others"),
            )
        ),
    )


def readable(rate: Column) -> Column:
    """Return the column with the value of the column `rate` as text, with the unit of the row's quota."""
    size = sql.format_string("%.0f B/s", rate)
    for least, unit in reversed(_SIZES):
        size = sql.when(rate >= least, sql.format_string(f"%.2f {unit}", rate / least)).otherwise(size)
    return (
        sql.when(sql.col("quota").isin([key.value for key in BYTES]), size)
        .when(sql.col("quota") == _MUTATIONS, sql.format_string("%.2f partitions/s", rate))
        .otherwise(sql.format_string("%.2f %%", rate))
    )


def _statistic(plan: Plan) -> Column:
    of = PERCENTILES[plan.percentile].replace("max", "maximum")
    of_each = sql.when(
        sql.col("members") > 1, sql.format_string(f"sum of the {of} of %d client-ids", "members")
    ).otherwise(of)
    if plan.hours_percentile < 100:
        return sql.concat(
            of_each,
            sql.lit(f" in the {plan.hours_percentile:g}th percentile of "),
            sql.format_string("%d hours", "hours_used"),
        )
    hour = sql.date_format(sql.timestamp_millis(sql.col("at_ms")), "yyyy-MM-dd HH:mm")
    broker = sql.when(
        sql.col("broker").isNotNull() & (sql.col("quota") != _MUTATIONS),
        sql.format_string(", busiest on broker %d", "broker"),
    )
    return sql.concat(
        of_each, sql.lit(" of the busiest hour, "), hour, sql.lit(" UTC"), sql.coalesce(broker, sql.lit(""))
    )


def _arithmetic(plan: Plan) -> str:
    growth = f" x {1 + plan.growth:g} growth" if plan.growth else ""
    return f";{growth} x {plan.headroom:g} headroom"


def _bound(plan: Plan, factors: Mapping[QuotaKey, float]) -> Column:
    """Return the column with the end of a reason: text that tells if floor, capacity or too few active hours
    changed the proposal; "" if none did.
    """
    cut = sql.lit("")
    for quota, factor in factors.items():
        if factor < 1:
            told = f"; cut to {factor:.1%} of what is above the floor, to fit the capacity"
            cut = sql.when(sql.col("quota") == quota.value, told).otherwise(cut)
    few = sql.format_string("; active in %d h only: left to the default", "hours")
    return (
        sql.when(sql.col("is_one_off"), few)
        .when(sql.col("wanted") <= floor(plan), "; raised to the floor")
        .when(sql.col("proposed") < sql.col("wanted"), cut)
        .otherwise("")
    )
