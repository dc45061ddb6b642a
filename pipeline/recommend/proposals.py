"""Propose a limit for each budget and quota: use, times growth and headroom, at least the floor.

If a quota held the demand back, the use says only that the demand is *at least* that high: twice the use is
proposed as a first step. Names that stand for no client or for several, and names that a quota file cannot
contain, get no entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from weir.pipeline.recommend.flags import flags, held_back
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.plan import FEW_HOURS, PAIRS, STEP, STEPS_PER_UNIT, RecommendationPlan
from weir.quotas import QuotaKey
from weir.quotas.table.bounded_names import OVERFLOW
from weir.quotas.table.quota_entry import DEFAULT_MARKER
from weir.quotas.table.quota_kind import IN_BYTES

_LARGEST: Final = 9e16  # a hundred times this value fits into a long
_ABSENT: Final = ("used", "usual", "busiest", "ordinary", "near", "held", "peak", "hours_used", "days")
_SHORTENED: Final = r"(?s)\A.{191}~[0-9a-f]{64}\z"
"""Pattern of the names that `quotas.table.bounded_names.shortened` makes; no client has such a name."""
WITHOUT: Final = "without a name"


def wanted(budgets: pl.DataFrame, needs: pl.DataFrame, plan: RecommendationPlan, level: str) -> pl.DataFrame:
    """Return one row per row of `current.budgets`, with the columns of `need.needs` and

    - `is_one_off`: True if the entity gets no entry, because it was active in too few hours;
    - `is_held_back`: True if its demand is unknown;
    - `least`: its use; if its own quota held it back, that quota, because a step begins at the quota in
      force; and `factor` on this: a step if the demand is unknown, else growth and headroom;
    - `low`: the floor (lowest limit to propose), and `wanted`: the limit that it needs;
    - `robust`: the limit that no capacity lowers: its use without its busiest hours, the floor if it was
      active in few hours, and `least` if its demand is unknown;
    - `of_user`: True for the budget of a user's clients without a client-id, among budgets of users with
      client-ids;
    - `why`: the reason why it gets no entry; null if it gets one or if the default entry covers it.
    """
    rows = budgets.join(needs, on=[*POT, "quota"], how="left", nulls_equal=True).with_columns(
        pl.col(*_ABSENT).fill_null(0), pl.col("members").fill_null(1)
    )
    few = pl.col("hours") < plan.min_active_hours
    rows = rows.with_columns(
        is_one_off=few & ~pl.col("named") & pl.col("client_id_prefix").is_null(),
        is_held_back=held_back(),
        of_user=pl.lit(level == PAIRS) & pl.col("client_id").is_null() & pl.col("client_id_prefix").is_null(),
        low=_by_quota({key: plan.floor(key) for key in plan.quotas}),
    )
    held = pl.when("is_held_back")
    own = held.then(pl.when("alone").then("current")).fill_null(0.0)
    rows = rows.with_columns(
        least=pl.max_horizontal("used", own), factor=held.then(max(STEP, plan.factor)).otherwise(plan.factor)
    )
    need = pl.when("is_one_off").then(0.0).otherwise(pl.col("least") * pl.col("factor"))
    rows = rows.with_columns(wanted=pl.max_horizontal("low", _rounded(need)))
    many = pl.when(pl.col("hours_used") >= FEW_HOURS).then(pl.min_horizontal("used", "ordinary"))
    robust = _rounded(held.then("least").otherwise(many.fill_null(0.0)))
    rows = rows.with_columns(robust=pl.min_horizontal("wanted", pl.max_horizontal("low", robust)))
    small = pl.col("of_user") & (pl.col("wanted") <= pl.col("low")).all().over(POT)
    alone = pl.col("is_one_off") & (pl.lit(not plan.with_default) | pl.col("of_user"))
    others = {WITHOUT: small, "active in too few hours": alone}
    return rows.with_columns(why=pl.coalesce(_unsayable("user"), _unsayable("client_id"), *_first(others)))


def _unsayable(name: str) -> pl.Expr:
    """Return the column with the reason why a quota file cannot name this user or client-id; null if it
    can.
    """
    text = pl.col(name)
    reasons = {
        WITHOUT: text == "",
        "with a name that is no text": text.str.contains("\ufffd", literal=True),
        f"called {DEFAULT_MARKER}": text == DEFAULT_MARKER,
        f"counted as {OVERFLOW}": text == OVERFLOW,
        "with a name that was shortened": text.str.contains(_SHORTENED),
    }
    return pl.coalesce(_first(reasons))


def _first(reasons: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    return [pl.when(condition).then(pl.lit(reason)) for reason, condition in reasons.items()]


def proposed(rows: pl.DataFrame, plan: RecommendationPlan, first_ms: int, end_ms: int) -> pl.DataFrame:
    """Return rows of `wanted`, with their `limit` within the capacity, with `proposed`: that limit, rounded
    down; and with

    - `lower`: enough for the busiest hour of half of the days, and at most `proposed`; if the demand was held
      back, what was used;
    - `upper`: enough for the busiest hour of all days, and at least `proposed`; null if the demand was held
      back;
    - `confidence`: the chance that the next day stays below the busiest of n days, n / (n + 1), if no day is
      special; null if the demand was held back, or without use;
    - `in_default`: True if the default entry covers the entity;
    - `flags`: a list. The recorded usage covers the time from `first_ms` to `end_ms`.
    """
    rows = rows.with_columns(proposed=_rounded(pl.col("limit"), down=True))
    is_known = ~pl.col("is_held_back")
    usual = pl.when(is_known).then(pl.col("usual") * pl.col("factor")).otherwise("used")
    upper = pl.max_horizontal("proposed", _rounded(pl.col("busiest") * pl.col("factor")))
    coverable = pl.lit(plan.with_default) & pl.col("client_id_prefix").is_null() & ~pl.col("of_user")
    return rows.with_columns(
        lower=pl.min_horizontal("proposed", pl.max_horizontal("low", _rounded(usual))),
        upper=pl.when(is_known).then(upper),
        confidence=pl.when(is_known & (pl.col("days") > 0)).then(pl.col("days") / (pl.col("days") + 1)),
        in_default=coverable & (pl.col("proposed") <= pl.col("low")),
        flags=flags(plan, first_ms, end_ms),
    )


def _by_quota(values: Mapping[QuotaKey, float]) -> pl.Expr:
    names = {key.value: value for key, value in values.items()}
    return pl.col("quota").replace_strict(names, return_dtype=pl.Float64)


def _rounded(rate: pl.Expr, *, down: bool = False) -> pl.Expr:
    """Return a rate rounded to whole bytes/s, or to hundredths of other units. Digits beyond six decimals of
    such a step are rounding errors, and are removed.
    """
    is_bytes = pl.col("quota").is_in([key.value for key in IN_BYTES])
    per_unit = pl.when(is_bytes).then(1.0).otherwise(float(STEPS_PER_UNIT))
    steps = (pl.min_horizontal(rate, pl.lit(_LARGEST)) * per_unit).round(6)
    return (steps.floor() if down else steps.ceil()) / per_unit
