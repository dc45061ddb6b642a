"""Compose the reason of a proposal: one line with its arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from weir.pipeline.recommend.flags import FEW, OUTLIER
from weir.pipeline.recommend.plan import PERCENTILES, ROBUST, STEP, RecommendationPlan, moment
from weir.quotas import QuotaKey
from weir.quotas.table.quota_kind import KINDS

Row: TypeAlias = dict[str, Any]
"""A proposal: the columns of `proposals.proposed`; rates in the quota's unit."""
_SIZES: Final = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def reason(row: Row, plan: RecommendationPlan) -> str:
    """Return the reason, such as `p99 of the busiest hour, 2026-11-20 14:00 UTC, at broker 3: 1.20 MB/s; x
    1.5 headroom`.
    """
    quota = QuotaKey(row["quota"])
    parts = [*_use(row, quota, plan), *_bound(row)]
    if row["current"] is not None:
        parts.append(f"now {readable(quota, row['current'])}{'' if row['alone'] else ' shared with others'}")
    return "; ".join(parts)


def readable(quota: QuotaKey, rate: float) -> str:
    """Return a rate of a quota as text with its unit.

    >>> readable(QuotaKey.PRODUCER_BYTE_RATE, 1_500_000)
    '1.50 MB/s'
    """
    unit = KINDS[quota].unit
    if unit != "bytes/s":
        return f"{rate:.2f} {'%' if unit == 'percent' else unit}"
    return next((f"{rate / size:.2f} {unit}" for size, unit in _SIZES if rate >= size), f"{rate:.0f} B/s")


def _use(row: Row, quota: QuotaKey, plan: RecommendationPlan) -> Iterator[str]:
    if not row["used"]:
        yield "no use"
        return
    at_least = "at least " if row["is_held_back"] else ""
    yield f"{_statistic(row, quota, plan)}: {at_least}{readable(quota, row['used'])}"
    if row["is_held_back"]:
        base = f" of {readable(quota, row['least'])}" if row["least"] > row["used"] else ""
        yield f"held back, demand unknown: first step x {max(STEP, plan.factor):g}{base}, again in a week"
    else:
        growth = f"x {1 + plan.growth:g} growth " if plan.growth else ""
        yield f"{growth}x {plan.headroom:g} headroom"
    if {OUTLIER, FEW} & {*row["flags"]} and row["busiest"] > row["used"]:
        yield f"its busiest hour, {moment(row['at_ms'])}: {readable(quota, row['busiest'])}"


def _statistic(row: Row, quota: QuotaKey, plan: RecommendationPlan) -> str:
    name = PERCENTILES[plan.percentile].replace("max", "maximum")
    each = f"sum of the {name} of {row['members']} client-ids" if row["members"] > 1 else name
    percentile = ROBUST if plan.hours_percentile is None else plan.hours_percentile
    if percentile < 100 and row["hours_used"] > 1:
        hours = f"in the {percentile:g}th percentile of {row['hours_used']} hours"
    else:
        hours = f"of the busiest hour, {moment(row['at_ms'] or 0)}"
    where = "" if KINDS[quota].is_of_controller else f", at broker {row['broker']}"
    return f"{each} {hours}{where}"


def _bound(row: Row) -> Iterator[str]:
    """Yield the text that tells if the floor (lowest proposal), the capacity, or too few hours with usage
    changed the proposal.
    """
    if row["is_one_off"]:
        yield f"active in {row['hours']} h only: left to the default"
    elif row["wanted"] <= row["low"]:
        yield "raised to the floor"
    elif row["proposed"] < row["wanted"]:
        where = (
            f"broker {row['full_broker']} in its hour"
            if row["full_broker"] >= 0
            else "the cluster in the hour"
        )
        yield f"lowered to the capacity of {where} {moment(row['full_ms'])}"
