"""The need of each entity: the highest of its needs at any broker, because a quota applies at each broker.

At one broker, the need is a percentile over hours of a percentile over each hour's windows. By default it is
the `ROBUST` percentile of the hours with use, so that a rare hour, such as a back-fill, makes no quota. Few
hours have no outliers that could be told from the rest: there the busiest hour counts.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from weir.pipeline.recommend.plan import MANY_HOURS, ROBUST

POT: Final = ("user", "client_id", "client_id_prefix")
"""Columns that identify the owner of a budget: an entity, or the client-ids that share a prefix's quota."""
NEED: Final[dict[str, type[pl.DataType]]] = {
    **dict.fromkeys((*POT, "quota"), pl.String),
    "broker": pl.Int64,  # where the need is highest
    "used": pl.Float64,  # the need, before growth and headroom; 0 without use
    "usual": pl.Float64,  # median of the days' busiest hours
    "busiest": pl.Float64,  # the busiest hour, and its beginning
    "at_ms": pl.Int64,
    "ordinary": pl.Float64,  # the need without the busiest hours; what is far above it is an outlier
    "hours_used": pl.Int64,
    "days": pl.Int64,  # number of days with use
    "near": pl.Float64,  # the 95th percentile of windows, in the same percentile of hours
    "held": pl.Float64,  # throttled share of the active time (0 to 1), in the same percentile of hours
    "peak": pl.Float64,  # the highest rate of any window, at any broker
    "members": pl.Int64,  # number of client-ids that share the budget
}
"""Columns of `needs`."""
_FEW_ORDINARY: Final = 0.9
"""Share of the hours that are `ordinary` for an entity with few hours."""


def needs(hours: pl.DataFrame, hours_percentile: float | None) -> pl.DataFrame:
    """Return one row per budget and quota, with the columns `NEED`.

    `hours` has one row per budget, quota, broker and hour: `POT`, `quota`, `broker`, `start_ms`, `day`,
    `members`, `active_s` and `throttled_s` (s), and in the quota's unit `used` (the chosen percentile of the
    windows), `p95` and `max`.
    """
    at_broker = [*POT, "quota", "broker"]
    used = pl.col("used").filter(pl.col("used") > 0)
    held = pl.when(pl.col("active_s") > 0).then(pl.col("throttled_s") / pl.col("active_s")).otherwise(0.0)
    each = hours.group_by(at_broker).agg(
        hours_used=used.len().cast(pl.Int64),
        used=_of_hours(used, hours_percentile),
        ordinary=_by_hours(used.quantile(ROBUST / 100, "linear"), used.quantile(_FEW_ORDINARY, "lower")),
        busiest=used.max(),
        at_ms=pl.col("start_ms").sort_by("used", "start_ms").last(),
        near=_of_hours(pl.col("p95"), hours_percentile),
        held=_of_hours(held, hours_percentile),
        peak=pl.col("max").max(),
        members=pl.col("members").max(),
    )
    days = hours.filter(pl.col("used") > 0).group_by(*at_broker, "day").agg(pl.col("used").max())
    usual = days.group_by(at_broker).agg(usual=pl.col("used").median(), days=pl.len().cast(pl.Int64))
    return _highest(each.join(usual, on=at_broker, how="left", nulls_equal=True))


def _of_hours(value: pl.Expr, hours_percentile: float | None) -> pl.Expr:
    if hours_percentile is not None:
        return value.quantile(hours_percentile / 100, "linear")
    return _by_hours(value.quantile(ROBUST / 100, "linear"), value.max())


def _by_hours(many: pl.Expr, few: pl.Expr) -> pl.Expr:
    enough = (pl.col("used") > 0).sum() >= MANY_HOURS
    return pl.when(enough).then(many).otherwise(few)


def _highest(at_brokers: pl.DataFrame) -> pl.DataFrame:
    """Return the row of the broker with the highest `used`, for each budget and quota."""
    ordered = at_brokers.with_columns(
        pl.col("used", "usual", "busiest", "ordinary", "days").fill_null(0),
        pl.col("held", "peak").max().over(*POT, "quota"),  # of all brokers
    ).sort("used", -pl.col("broker"))
    found = ordered.group_by(*POT, "quota").last()
    return found.select(pl.col(name).cast(kind) for name, kind in NEED.items())
