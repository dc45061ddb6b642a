"""Flags: marks of proposals that an operator should check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from weir.pipeline.recommend.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import Column

NEVER_NEAR: Final = "never near"
MOSTLY_THROTTLED: Final = "mostly throttled"
THROTTLED_AT_PEAK: Final = "throttled at peak"
NEW: Final = "new"
ONE_OFF: Final = "one-off"
CUT: Final = "cut below use"

MEANINGS: Final = {
    NEVER_NEAR: "used only a small share of its current quota",
    MOSTLY_THROTTLED: "throttled most of the time in which it was active",
    THROTTLED_AT_PEAK: "throttled in its busiest hour: its demand may be higher",
    NEW: "active in the last day only",
    ONE_OFF: "active in too few hours for an entry of its own",
    CUT: "gets less than it used",
}
DAY_MS: Final = 86_400_000


def flags(plan: Plan, first_ms: int, end_ms: int) -> Column:
    """Return the column with the flags of a proposal, an array of strings such as `never near`. The recorded
    usage covers the time from `first_ms` to `end_ms`.
    """
    is_new = sql.lit(end_ms - first_ms > DAY_MS) & (sql.col("first_ms") >= sql.lit(end_ms - DAY_MS))
    throttled = sql.col("throttled_s") > sql.col("active_s") * sql.lit(plan.throttled)
    idle = sql.col("alone") & (sql.col("peak") < sql.col("current") * sql.lit(plan.near)) & ~is_new
    conditions = {
        NEVER_NEAR: idle,
        MOSTLY_THROTTLED: throttled,
        THROTTLED_AT_PEAK: sql.col("throttled_at_peak_s") > 0,
        NEW: is_new,
        ONE_OFF: sql.col("is_one_off"),
        CUT: sql.col("proposed") < sql.col("used"),
    }
    found = [sql.when(condition, sql.lit(flag)) for flag, condition in conditions.items()]
    return sql.array_compact(sql.array(*found))
