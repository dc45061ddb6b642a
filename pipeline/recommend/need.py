"""The need of each entity: a percentile over its hours with use. The use in an hour is a percentile over the
hour's windows at the broker where that is highest, because a quota applies at each broker.

By default the need is the `ROBUST` percentile of the hours, so that a rare hour, such as a back-fill, makes
no quota, whatever broker it was at. Values are interpolated: the weight of the busiest hour falls from all to
nothing while an entity's hours grow from one to a hundred.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from weir.pipeline.recommend.plan import ROBUST

POT: Final = ("user", "client_id", "client_id_prefix")
"""Columns that identify the owner of a budget: an entity, or the client-ids that share a prefix's quota."""
NEED: Final[dict[str, type[pl.DataType]]] = {
    **dict.fromkeys((*POT, "quota"), pl.String),
    "broker": pl.Int64,  # of the hour with this need
    "used": pl.Float64,  # the need, before growth and headroom; 0 without use
    "usual": pl.Float64,  # median of the days' busiest hours
    "busiest": pl.Float64,  # the busiest hour, and its beginning
    "at_ms": pl.Int64,
    "ordinary": pl.Float64,  # use without the busiest days; an hour far above it is an outlier
    "hours_used": pl.Int64,
    "days": pl.Int64,  # number of days with use
    "near": pl.Float64,  # the 95th percentile of windows, in the same percentile of hours
    "held": pl.Float64,  # throttled share of the active time (0 to 1), in the same percentile of hours
    "peak": pl.Float64,  # the highest rate of any window, at any broker
    "members": pl.Int64,  # number of client-ids that share the budget
}
"""Columns of `needs`."""
_MANY_DAYS: Final = 3
"""Number of days with use from which a job of each day differs from a back-fill on one day."""
_ORDINARY_DAYS: Final = 0.8
"""Share of the days whose busiest hours are `ordinary`; a back-fill may go on after midnight."""
_ORDINARY_HOURS: Final = 0.9
"""Share of the hours that are `ordinary` for an entity with fewer days."""


def needs(hours: pl.DataFrame, hours_percentile: float | None) -> pl.DataFrame:
    """Return one row per budget and quota, with the columns `NEED`.

    `hours` has one row per budget, quota, broker and hour: `POT`, `quota`, `broker`, `start_ms`, `day`,
    `members`, `active_s` and `throttled_s` (s), and in the quota's unit `used` (the chosen percentile of the
    windows), `p95` and `max`.
    """
    budget = [*POT, "quota"]
    held = pl.when(pl.col("active_s") > 0).then(pl.col("throttled_s") / pl.col("active_s")).otherwise(0.0)
    each = (
        hours.with_columns(held=held)
        .sort("used", -pl.col("broker"))
        .group_by(*budget, "start_ms", maintain_order=True)
        .agg(pl.col("broker", "day").last(), pl.col("used", "p95", "held", "max", "members").max())
        .sort("used", "start_ms")  # so the values of a budget are in order, too
    )
    share = (ROBUST if hours_percentile is None else hours_percentile) / 100
    is_used = pl.col("used") > 0
    used, count = pl.col("used").filter(is_used), is_used.sum().cast(pl.Int64)
    found = each.group_by(budget).agg(
        broker=pl.col("broker")
        .filter(is_used)
        .get(((count - 1) * share).round().cast(pl.Int64), null_on_oob=True),
        used=used.quantile(share, "linear"),
        busiest=used.max(),
        at_ms=pl.col("start_ms").filter(is_used).last(),
        robust=used.quantile(ROBUST / 100, "linear"),
        ordinary=used.quantile(_ORDINARY_HOURS, "lower"),
        hours_used=count,
        near=pl.col("p95").quantile(share, "higher"),
        held=pl.col("held").quantile(share, "higher"),
        peak=pl.col("max").max(),
        members=pl.col("members").max(),
    )
    days = each.filter(is_used).group_by(*budget, "day").agg(pl.col("used").max())
    usual = days.group_by(budget).agg(
        usual=pl.col("used").median(),
        days=pl.len(),
        of_days=pl.col("used").quantile(_ORDINARY_DAYS, "lower"),
    )
    found = found.join(usual, on=budget, how="left", nulls_equal=True)
    ordinary = pl.when(pl.col("days") >= _MANY_DAYS).then("of_days").otherwise("ordinary")
    found = found.with_columns(ordinary=pl.min_horizontal(ordinary, "robust"))
    found = found.with_columns(pl.col("used", "usual", "busiest", "ordinary", "days").fill_null(0))
    return found.select(pl.col(name).cast(kind) for name, kind in NEED.items())
