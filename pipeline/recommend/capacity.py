"""Fit proposals into the capacity: multiply the part of each proposal above the floor by one common factor.

So each entity gets at least the floor, and entities that need more get more. The largest factor that fits
follows from three sums: room = floors + factor · (proposed - floors).

>>> fit(proposed=300.0, floors=100.0, room=150.0)
0.25
>>> fit(proposed=300.0, floors=100.0, room=300.0)
1.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as sql

from weir.pipeline.outcome import PipelineError
from weir.pipeline.recommend.plan import BYTES, STEPS_PER_UNIT, Plan
from weir.quotas import QuotaKey

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Rounding: TypeAlias = Callable[[Column], Column]


def fit(*, proposed: float, floors: float, room: float) -> float:
    """Return the largest factor, at most 1, for the part of the proposals above the floors with which the
    proposals fit into `room` (arguments are sums, in one unit). Raises ValueError if the floors alone exceed
    `room`.
    """
    if proposed <= room:
        return 1.0
    if floors > room:
        raise ValueError(f"the floors alone are {floors:.10g}, and there is room for {room:.10g}")
    return (room - floors) / (proposed - floors)


def factors(proposals: DataFrame, plan: Plan, kept: Mapping[QuotaKey, float]) -> dict[QuotaKey, float]:
    """Return, for each quota that has a capacity, the factor (0 to 1) for the part of its proposals above the
    floor. `kept` has the sum of each quota's values that the new file takes over from the current one.
    `proposals` has the columns `quota` and `wanted`, one row per entity and quota.

    Raises PipelineError if even the floors exceed the capacity.
    """
    if not plan.capacity:
        return {}
    rows = proposals.groupBy("quota").agg(
        sql.sum("wanted").alias("wanted"), sql.count(sql.lit(1)).alias("entities")
    )
    sums = {row["quota"]: (row["wanted"], row["entities"]) for row in rows.collect()}  # a row per quota
    found = {}
    for quota, capacity in plan.capacity.items():
        wanted, entities = sums.get(quota.value, (0.0, 0))
        room = capacity * plan.over_commitment - kept.get(quota, 0.0)
        try:
            found[quota] = fit(proposed=wanted, floors=entities * plan.floor(quota), room=room)
        except ValueError as error:
            raise PipelineError(
                f"{quota.value}: {error} ({entities} entities x {plan.floor(quota):g}; capacity {capacity:g} "
                f"x {plan.over_commitment:g} over-commitment, less what is kept): lower --floor, or raise "
                "--over-commitment"
            ) from None
    return found


def wanted(plan: Plan) -> Column:
    """Return the column with an entity's need of a quota: `used` · (1 + growth) · headroom, rounded up, and
    at least the floor.
    """
    need = sql.when(sql.col("is_one_off"), 0.0).otherwise(sql.col("used") * sql.lit(plan.factor))
    return sql.greatest(floor(plan), _rounded(need, sql.ceil))


def proposed(plan: Plan, by: Mapping[QuotaKey, float]) -> Column:
    """Return the column with the proposed limit: the floor, plus the part of `wanted` above the floor
    multiplied by the quota's factor in `by`, rounded down.
    """
    kept = sql.col("wanted")
    for quota, factor in by.items():
        if factor < 1:
            above = (sql.col("wanted") - floor(plan)) * sql.lit(factor)
            cut = sql.greatest(floor(plan), _rounded(floor(plan) + above, sql.floor))
            kept = sql.when(sql.col("quota") == quota.value, cut).otherwise(kept)
    return kept


def floor(plan: Plan) -> Column:
    floors = [item for quota in plan.quotas for item in (sql.lit(quota.value), sql.lit(plan.floor(quota)))]
    return sql.create_map(*floors)[sql.col("quota")]


def _rounded(value: Column, to: Rounding) -> Column:
    """Round a rate with `to` to whole bytes/s, or to hundredths of other units. First round to six digits of
    such a step, because further digits are rounding errors.
    """
    steps = sql.when(sql.col("quota").isin([key.value for key in BYTES]), 1.0).otherwise(
        float(STEPS_PER_UNIT)
    )
    largest = sql.lit(9e16)  # a hundred times this value fits into a long
    return to(sql.round(sql.least(value, largest) * steps, 6)).cast("double") / steps
