"""Compose the reason of a proposal: one line with its arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from weir.pipeline.recommend.flags import OUTLIER
from weir.pipeline.recommend.plan import BYTES, MANY_HOURS, PERCENTILES, ROBUST, STEP, Plan, moment
from weir.quotas import QuotaKey

_SIZES: Final = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


class Ground(NamedTuple):
    """The columns of a proposal from which its reason follows; rates in the quota's unit."""

    quota: str
    broker: int | None
    used: float
    least: float
    busiest: float
    at_ms: int | None
    hours: int
    hours_used: int
    members: int
    current: float | None
    alone: bool
    is_held_back: bool
    is_one_off: bool
    low: float
    wanted: float
    proposed: float
    flags: list[str]


def reason(of: Ground, plan: Plan, factors: Mapping[QuotaKey, float]) -> str:
    """Return the reason, such as `p99 of the busiest hour, 2026-11-20 14:00 UTC, at broker 3: 1.20 MB/s; x
    1.5 headroom`.
    """
    quota = QuotaKey(of.quota)
    parts = [*_use(of, quota, plan), *_bound(of, factors.get(quota, 1.0))]
    if of.current is not None:
        parts.append(f"now {readable(quota, of.current)}{'' if of.alone else ' shared with others'}")
    return "; ".join(parts)


def readable(quota: QuotaKey, rate: float) -> str:
    """Return a rate of a quota as text with its unit.

    >>> readable(QuotaKey.PRODUCER_BYTE_RATE, 1_500_000)
    '1.50 MB/s'
    """
    if quota is QuotaKey.CONTROLLER_MUTATION_RATE:
        return f"{rate:.2f} partitions/s"
    if quota not in BYTES:
        return f"{rate:.2f} %"
    return next((f"{rate / size:.2f} {unit}" for size, unit in _SIZES if rate >= size), f"{rate:.0f} B/s")


def hours_percentile(plan: Plan, hours_used: int) -> float:
    """Return the percentile over this number of hours with use: 100 for the busiest hour."""
    if plan.hours_percentile is not None:
        return plan.hours_percentile
    return ROBUST if hours_used >= MANY_HOURS else 100


def _use(of: Ground, quota: QuotaKey, plan: Plan) -> Iterator[str]:
    if not of.used:
        yield "no use"
        return
    at_least = "at least " if of.is_held_back else ""
    yield f"{_statistic(of, quota, plan)}: {at_least}{readable(quota, of.used)}"
    if of.is_held_back:
        base = f" of {readable(quota, of.least)}" if of.least > of.used else ""
        yield f"held back, demand unknown: first step x {max(STEP, plan.factor):g}{base}, again in a week"
    else:
        growth = f"x {1 + plan.growth:g} growth " if plan.growth else ""
        yield f"{growth}x {plan.headroom:g} headroom"
    if OUTLIER in of.flags and of.busiest > of.used and of.at_ms is not None:
        yield f"without its busiest hour, {moment(of.at_ms)}: {readable(quota, of.busiest)}"


def _statistic(of: Ground, quota: QuotaKey, plan: Plan) -> str:
    name = PERCENTILES[plan.percentile].replace("max", "maximum")
    each = f"sum of the {name} of {of.members} client-ids" if of.members > 1 else name
    percentile = hours_percentile(plan, of.hours_used)
    if percentile < 100:
        hours = f"in the {percentile:g}th percentile of {of.hours_used} hours"
    else:
        hours = f"of the busiest hour, {moment(of.at_ms or 0)}"
    where = "" if quota is QuotaKey.CONTROLLER_MUTATION_RATE else f", at broker {of.broker}"
    return f"{each} {hours}{where}"


def _bound(of: Ground, factor: float) -> Iterator[str]:
    """Yield the text that tells if the floor (lowest proposal), the capacity, or too few hours with usage
    changed the proposal.
    """
    if of.is_one_off:
        yield f"active in {of.hours} h only: left to the default"
    elif of.wanted <= of.low:
        yield "raised to the floor"
    elif of.proposed < of.wanted:
        yield f"cut to {factor:.1%} of what is above the floor, to fit the capacity"
