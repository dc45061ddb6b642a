"""Fit proposed limits into the brokers' capacity: lower those of the entities that fill a broker in its full
hours, the largest first.

A full hour has a cap: if all higher rates in it were the cap, the load would be the capacity. An entity whose
rate is above the cap gets the cap as limit, but at least its `robust` limit, which no capacity lowers. The
fullest hours come first, so that the limits that they lower count in the others, and lower less there.

The load that counts is the coincident peak: per broker and hour, the sum over the entities of their use, each
at most its limit. Peaks of different hours are not added up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from weir.pipeline.arrow import collected, in_spark
from weir.pipeline.outcome import PipelineError
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.plan import RecommendationPlan, moment
from weir.quotas import QuotaKey

HOUR: Final = ("quota", "broker", "start_ms")
LIMITS: Final = (*POT, "quota", "low", "robust", "limit", "is_held_back")
"""Columns of the limits, in the quota's unit: `low` is the floor, `robust` at least that."""
_SLACK: Final = 1 + 1e-9
_USES_AT_ONCE: Final = 1_000_000
"""Maximum number of uses in full hours that are on the driver at once, unless one hour has more."""


def cap(uses: Sequence[tuple[float, float]], room: float) -> float:
    """Return the cap with which the sum of rates is `room`, if each rate is lowered to the cap, but at most
    to its least value. `uses` has the least value and the rate of each entity. Return 0 if the least values
    need all of the room, and infinity if all rates fit.

    >>> cap([(0.0, 7.0), (0.0, 3.0), (2.0, 2.5)], 8.5), cap([(4.0, 7.0), (1.0, 5.0)], 6.0)
    (3.0, 2.0)
    """
    total, at, growing = sum(least for least, _rate in uses), 0.0, 0
    if total >= room:
        return 0.0
    turns = [(least, 1) for least, _rate in uses] + [(rate, -1) for _least, rate in uses]
    for end, change in sorted(turns):
        if total + growing * (end - at) > room:
            return at + (room - total) / growing
        total, at, growing = total + growing * (end - at), end, growing + change
    return math.inf


def lowered(limits: pl.DataFrame, uses: pl.DataFrame, full: pl.DataFrame) -> pl.DataFrame:
    """Return the limits (`LIMITS`, `entity`, `full_broker` and `full_ms`) with which these full hours fit,
    and the broker and beginning (ms) of the hour that lowered each. `full` has the hours, in order, with
    their `room` for `uses`. `uses` has the rates of entities that can be lowered, by hour: `entity` and
    `demand`, infinite for unknown demand.
    """
    limit, robust = (limits[name].to_list() for name in ("limit", "robust"))
    why = list(limits.select("full_broker", "full_ms").iter_rows())
    by_hour = uses.partition_by(HOUR, as_dict=True)
    for *hour, room in full.select(*HOUR, "room").iter_rows():
        rows = by_hour[tuple(hour)].select("entity", "demand").rows()
        rates = [(min(demand, robust[one]), min(demand, limit[one])) for one, demand in rows]
        most = cap(rates, room)
        for (one, _demand), (_least, rate) in zip(rows, rates, strict=True):
            lower = max(most, robust[one])
            if rate > most and lower < limit[one]:
                limit[one], why[one] = lower, tuple(hour[1:])
    brokers, starts = zip(*why, strict=True)
    return limits.with_columns(
        limit=pl.Series(limit, dtype=pl.Float64),
        full_broker=pl.Series(brokers, dtype=pl.Int64),
        full_ms=pl.Series(starts, dtype=pl.Int64),
    )


def fitted(
    hours: DataFrame, limits: pl.DataFrame, plan: RecommendationPlan, kept: Mapping[QuotaKey, float]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the limits that fit the capacity, and the loads under them.

    The former are as from `lowered`. The latter have one row per quota, broker and hour: `HOUR`, `mean` (the
    average rate), `load`, `least` (with each limit at `robust`), `room` (the capacity for entities with use;
    null without a bound) and others. Entities without a limit count with their use. Those that were held back
    count, in hours with throttle times, with their whole limit: they would have used it. `kept` has, for each
    quota, the sum of the values that the new file takes over for entities without use.

    Raises PipelineError if even the floors exceed the capacity.
    """
    room = {
        key.value: plan.capacity[key] * plan.over_commitment - kept.get(key, 0.0) for key in plan.capacity
    }
    nothing = pl.lit(None, pl.Int64)
    entity = pl.int_range(pl.len(), dtype=pl.Int64)
    limits = limits.select(LIMITS).with_columns(entity=entity, full_broker=nothing, full_ms=nothing)
    found = _loads(hours, limits, plan, room)
    for row in (
        found.filter(pl.col("low") > pl.col("room") * _SLACK).sort("low").tail(1).iter_rows(named=True)
    ):
        raise PipelineError(_too_much(row, plan))
    while (full := _full(found)).height:
        wanted = fn.broadcast(in_spark(full.select(HOUR), hours.sparkSession))
        uses = _uses(hours, limits, plan).join(wanted, list(HOUR))
        movable = collected(uses.where("load > least").select(*HOUR, "entity", "demand"))
        limits = lowered(limits, movable, full)
        found = _loads(hours, limits, plan, room)
    return limits, found


def _full(loads: pl.DataFrame) -> pl.DataFrame:
    """Return the fullest hours that lower limits make less full, the fullest first, with the `room` for the
    entities whose limits can be lowered.
    """
    full = loads.filter(
        (pl.col("load") > pl.col("room") * _SLACK) & (pl.col("load") > pl.col("least") * _SLACK)
    )
    full = full.sort(pl.col("room") - pl.col("load"), *HOUR)
    some = full.filter(pl.col("movable").cum_sum().shift(1, fill_value=0) < _USES_AT_ONCE)
    return some.with_columns(room=pl.col("room") - pl.col("fixed"))


def _uses(hours: DataFrame, limits: pl.DataFrame, plan: RecommendationPlan) -> DataFrame:
    """Return the rows of `hours` with `entity` (row of the limits), `demand`, `load`, `least` and `low`."""
    asked = in_spark(limits.select("entity", *LIMITS), hours.sparkSession).alias("limits")
    same = [hours[name].eqNullSafe(asked[name]) for name in (*POT, "quota")]
    unknown = asked["is_held_back"] & (hours["throttled_s"] > 0)
    demand = fn.when(unknown, fn.lit(math.inf)).otherwise(hours["used"] * fn.lit(1 + plan.growth))

    def under(limit: str) -> Column:
        return fn.least(demand, asked[limit])  # least() ignores null

    return hours.join(asked, same, "left").select(
        *(hours[name] for name in (*HOUR, "mean")),
        asked["entity"],
        demand.alias("demand"),
        under("limit").alias("load"),
        under("robust").alias("least"),
        under("low").alias("low"),
    )


def _loads(
    hours: DataFrame, limits: pl.DataFrame, plan: RecommendationPlan, room: Mapping[str, float]
) -> pl.DataFrame:
    is_movable = fn.col("load") > fn.col("least")
    found = (
        _uses(hours, limits, plan)
        .groupBy(*HOUR)
        .agg(
            *(fn.sum(name).alias(name) for name in ("mean", "load", "least", "low")),
            fn.sum(fn.when(is_movable, 0.0).otherwise(fn.col("load"))).alias("fixed"),
            fn.count_if(is_movable).alias("movable"),
        )
    )
    bound = pl.col("quota").replace_strict(room, default=None, return_dtype=pl.Float64)
    return collected(found).with_columns(room=bound)


def _too_much(row: Mapping[str, Any], plan: RecommendationPlan) -> str:
    quota = QuotaKey(row["quota"])
    return (
        f"{quota.value}: even with the floor {plan.floor(quota):g} for every entity, the load exceeds "
        f"{row['room']:.10g} (broker {row['broker']}, {moment(row['start_ms'])}: {row['low']:.10g}): "
        f"capacity {plan.capacity[quota]:g} x {plan.over_commitment:g} over-commitment, "
        "less what is kept: lower --floor, or raise --over-commitment"
    )
