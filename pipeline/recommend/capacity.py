"""Fit proposed limits into the brokers' capacity: multiply the part of each proposal above the floor (the
lowest limit to propose) by one common factor.

So each entity gets at least the floor, and entities that need more get more. The load that counts is the
coincident peak: per broker and hour, the sum over the entities of their use, each at most its limit. Peaks of
different hours are not added up. The load grows with the factor, so that a grid of factors, computed at once,
encloses the largest one that fits; a second, finer grid finds it to a thousandth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

import polars as pl
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from weir.pipeline.arrow import collected, in_spark
from weir.pipeline.outcome import PipelineError
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.plan import Plan, moment
from weir.quotas import QuotaKey

STEPS: Final = 32
"""Number of steps of a grid of factors."""
LIMITS: Final = (*POT, "quota", "low", "wanted", "is_held_back")
"""Columns of the limits: `low` is the limit with the factor 0, `wanted` with the factor 1."""
_SLACK: Final = 1 + 1e-9
Grids = Mapping[QuotaKey, tuple[float, float]]
"""The least and the largest factor of a grid, by quota."""


def fitting(peaks: Sequence[float], room: float) -> int:
    """Return the index of the last of the peaks (ascending) that fits into `room`; -1 if none fits.

    >>> fitting([1.0, 2.0, 4.0], 3.0)
    1
    """
    return bisect_right(peaks, room * _SLACK) - 1


def loads(hours: DataFrame, limits: pl.DataFrame, plan: Plan, grids: Grids) -> pl.DataFrame:
    """Return one row per quota, broker and hour with the load of all entities: `quota`, `broker`, `start_ms`,
    `mean` (the average rate in the hour), and `load_0` to `load_STEPS`, the rates under limits with each
    factor of the quota's grid; only `load_0` without grids. A quota without a grid has the factor 1.

    Entities without a limit count with their use. Entities that were held back count, in hours with throttle
    times, with their whole limit: they would have used it.
    """
    asked = in_spark(limits.select(LIMITS), hours.sparkSession).alias("limits")
    same = [hours[name].eqNullSafe(asked[name]) for name in (*POT, "quota")]
    both = hours.join(asked, same, "left").select(
        *(hours[name] for name in ("quota", "broker", "start_ms", "mean", "used", "throttled_s")),
        *(asked[name] for name in ("low", "wanted", "is_held_back")),
    )
    found = both.groupBy("quota", "broker", "start_ms").agg(
        fn.sum("mean").alias("mean"),
        *(
            fn.sum(_load(_factor(grids, step), plan)).alias(f"load_{step}")
            for step in range(STEPS + 1 if grids else 1)
        ),
    )
    return collected(found)


def _factor(grids: Grids, step: int) -> Column:
    factor = fn.lit(1.0)
    for quota, (least, most) in grids.items():
        at = least + (most - least) * step / STEPS
        factor = fn.when(fn.col("quota") == quota.value, fn.lit(at)).otherwise(factor)
    return factor


def _load(factor: Column, plan: Plan) -> Column:
    limit = fn.col("low") + (fn.col("wanted") - fn.col("low")) * factor
    demand = fn.col("used") * fn.lit(1 + plan.growth)
    unknown = fn.col("is_held_back") & (fn.col("throttled_s") > 0)
    return fn.when(unknown, limit).otherwise(fn.least(demand, limit))  # least() ignores null


def factors(
    hours: DataFrame, limits: pl.DataFrame, plan: Plan, kept: Mapping[QuotaKey, float]
) -> tuple[dict[QuotaKey, float], pl.DataFrame]:
    """Return, for each quota that has a capacity, the factor (0 to 1) for the part of its proposals above the
    floor (lowest limit to propose); and the `loads`, whose last column is for the factor 1. `kept` has, for
    each quota, the sum of the values that the new file takes over from the current file for entities without
    use: this part of the capacity stays free for them.

    Raises PipelineError if even the floors exceed the capacity.
    """
    room = {key: plan.capacity[key] * plan.over_commitment - kept.get(key, 0.0) for key in plan.capacity}
    found = loads(hours, limits, plan, dict.fromkeys(room, (0.0, 1.0)))
    last = {key: _last(found, key, room[key]) for key in room}
    for key, index in last.items():
        if index < 0:
            raise PipelineError(_too_much(found, key, room[key], plan))
    grids = {key: (index / STEPS, (index + 1) / STEPS) for key, index in last.items() if index < STEPS}
    result = dict.fromkeys(room, 1.0)
    if grids:
        finer = loads(hours, limits, plan, grids)
        for key, (least, most) in grids.items():
            result[key] = least + (most - least) * max(_last(finer, key, room[key]), 0) / STEPS
    return result, found


def _last(found: pl.DataFrame, quota: QuotaKey, room: float) -> int:
    """Return the index of the largest factor of a grid that fits; -1 if none fits."""
    of_quota = found.filter(pl.col("quota") == quota.value)
    peaks = of_quota.select(pl.col(f"load_{step}").max().fill_null(0.0) for step in range(STEPS + 1)).row(0)
    return fitting(list(accumulate(peaks, max)), room)  # ascending, despite rounding


def _too_much(found: pl.DataFrame, quota: QuotaKey, room: float, plan: Plan) -> str:
    busiest = found.filter(pl.col("quota") == quota.value).sort("load_0")
    where = ""
    if busiest.height:
        row = busiest.row(-1, named=True)
        where = f" (broker {row['broker']}, {moment(row['start_ms'])}: {row['load_0']:.10g})"
    return (
        f"{quota.value}: even with the floor {plan.floor(quota):g} for every entity, the load exceeds "
        f"{room:.10g}{where}: capacity {plan.capacity[quota]:g} x {plan.over_commitment:g} over-commitment, "
        "less what is kept: lower --floor, or raise --over-commitment"
    )
