"""Flags: marks of proposals that an operator should check."""

from __future__ import annotations

from typing import Final

import polars as pl

from weir.pipeline.recommend.plan import FEW_HOURS, RecommendationPlan

NEVER_NEAR: Final = "never near"
HELD_BACK: Final = "held back"
OUTLIER: Final = "outlier"
FEW: Final = "few hours"
NEW: Final = "new"
ONE_OFF: Final = "one-off"
CUT: Final = "cut below use"

MEANINGS: Final = {
    NEVER_NEAR: "used only a small share of its current quota",
    HELD_BACK: "its demand is above its use, unknown how far: the proposal is a step",
    OUTLIER: "its busiest hour is far above its other hours",
    FEW: f"active in fewer than {FEW_HOURS} hours of a longer time: its busiest hour makes the proposal",
    NEW: "active in the last day only",
    ONE_OFF: "active in too few hours for an entry of its own",
    CUT: "gets less than it used",
}
DAY_MS: Final = 86_400_000
OUTLYING: Final = 2.0
"""Factor by which the busiest hour exceeds the ordinary ones if it is an outlier."""
_HELD: Final = 0.01
"""Share of the active time; an entity that was throttled for a larger share was held back."""
_NEAR: Final = (0.95, 1.05)
"""Shares of the current quota; an entity whose windows are between them may have been held back, even if the
records have no throttle times. Above them, the quota was not in force.
"""


def held_back() -> pl.Expr:
    """Return the column that is true if an entity's demand is unknown, because a quota held it back."""
    near = pl.col("alone") & (pl.col("near") / pl.col("current")).is_between(*_NEAR)
    return ((pl.col("held") > _HELD) | near.fill_null(value=False)) & (pl.col("peak") > 0)


def flags(plan: RecommendationPlan, first_ms: int, end_ms: int) -> pl.Expr:
    """Return the column with the flags of a proposal, a list of strings such as `never near`. The recorded
    usage covers the time from `first_ms` to `end_ms`.
    """
    is_long = pl.lit(end_ms - first_ms > DAY_MS)
    is_new = is_long & (pl.col("first_ms") >= end_ms - DAY_MS)
    idle = pl.col("alone") & (pl.col("peak") < pl.col("current") * plan.near) & ~is_new
    conditions = {
        NEVER_NEAR: idle,
        HELD_BACK: pl.col("is_held_back"),
        OUTLIER: pl.col("busiest") > OUTLYING * pl.col("ordinary"),
        FEW: is_long & pl.col("hours_used").is_between(1, FEW_HOURS - 1),
        NEW: is_new,
        ONE_OFF: pl.col("is_one_off"),
        CUT: pl.col("proposed") < pl.col("used"),
    }
    found = [pl.when(condition).then(pl.lit(flag)) for flag, condition in conditions.items()]
    return pl.concat_list(found).list.drop_nulls()
