"""Propose a limit for each budget and quota: use, times growth and headroom, at least the floor.

If a quota held the demand back, the use says only that the demand is *at least* that high: twice the use is
proposed as a first step. Names that stand for no client or for several, and names that a quota file cannot
contain, get no entry (`left_out`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import polars as pl

from weir.pipeline.recommend.flags import flags, held_back, step_or_headroom
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.plan import BYTES, PAIRS, STEPS_PER_UNIT, Plan
from weir.quotas import QuotaKey
from weir.quotas.table.bounded_names import OVERFLOW
from weir.quotas.table.quota_entry import DEFAULT_MARKER

_LARGEST: Final = 9e16  # a hundred times this value fits into a long
_ABSENT: Final = ("used", "usual", "busiest", "ordinary", "near", "held", "peak", "hours_used", "days")

SHORTENED: Final = re.compile(r".{191}~[0-9a-f]{64}", re.DOTALL)
"""Pattern of the names that `quotas.table.bounded_names.shortened` makes; no client has such a name."""

WITHOUT: Final = "without a name"
LITERAL_DEFAULT: Final = f"called {DEFAULT_MARKER}"
OVERFLOW_NAME: Final = f"counted as {OVERFLOW}"
LONG: Final = "with a name that was shortened"
NO_TEXT: Final = "with a name that is no text"


def wanted(budgets: pl.DataFrame, needs: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Return one row per row of `current.budgets`, with the columns of `need.needs` and

    - `is_one_off`: True if the entity gets no entry, because it was active in too few hours;
    - `is_held_back`: True if its demand is unknown;
    - `low`: the floor (lowest limit to propose), and `wanted`: the limit that it needs.
    """
    rows = budgets.join(needs, on=[*POT, "quota"], how="left", nulls_equal=True).with_columns(
        pl.col(*_ABSENT).fill_null(0), pl.col("members").fill_null(1)
    )
    few = pl.col("hours") < plan.min_active_hours
    rows = rows.with_columns(
        is_one_off=few & ~pl.col("named") & pl.col("client_id_prefix").is_null(),
        is_held_back=held_back(),
        low=floor(plan),
    ).with_columns(factor=step_or_headroom(plan), least=_at_least())
    need = pl.when("is_one_off").then(0.0).otherwise(pl.col("least") * pl.col("factor"))
    return rows.with_columns(wanted=pl.max_horizontal("low", _up(need)))


def _at_least() -> pl.Expr:
    """Return the column with the rate that the entity needs at least: its use; if its own quota held it back,
    that quota, because a step begins at the quota in force.
    """
    own = pl.when(pl.col("is_held_back") & pl.col("alone")).then("current")
    return pl.max_horizontal("used", own.fill_null(0.0))


def proposed(rows: pl.DataFrame, plan: Plan, factors: Mapping[QuotaKey, float]) -> pl.DataFrame:
    """Return the rows of `wanted` with `proposed`: the floor, plus the part of `wanted` above it multiplied
    by the quota's factor in `factors`, rounded down; and with

    - `lower`: enough for the busiest hour of half of the days, and at most `proposed`; if the demand was held
      back, what was used;
    - `upper`: enough for the busiest hour of all days, and at least `proposed`; null if the demand was held
      back;
    - `confidence`: the chance that the next day stays below the busiest of n days, n / (n + 1), if no day is
      special; null if the demand was held back, or without use.
    """
    factor = _by_quota({key.value: factors.get(key, 1.0) for key in plan.quotas})
    cut = pl.max_horizontal("low", _down(pl.col("low") + (pl.col("wanted") - pl.col("low")) * factor))
    rows = rows.with_columns(proposed=pl.when(factor < 1).then(cut).otherwise("wanted"))
    least = pl.when("is_held_back").then("used").otherwise(pl.col("usual") * pl.col("factor"))
    known = pl.when(~pl.col("is_held_back"))
    lower = pl.max_horizontal("low", _up(least))
    upper = pl.max_horizontal("proposed", _up(pl.col("busiest") * pl.col("factor")))
    has_days = ~pl.col("is_held_back") & (pl.col("days") > 0)
    return rows.with_columns(
        lower=pl.min_horizontal("proposed", lower),
        upper=known.then(upper),
        confidence=pl.when(has_days).then(pl.col("days") / (pl.col("days") + 1)),
    )


def marked(rows: pl.DataFrame, plan: Plan, level: str, first_ms: int, end_ms: int) -> pl.DataFrame:
    """Return the rows of `proposed` with `flags`, and with `in_default`: True if the default entry covers the
    entity. The recorded usage covers the time from `first_ms` to `end_ms`.
    """
    coverable = pl.lit(plan.with_default) & pl.col("client_id_prefix").is_null() & ~of_user(level)
    return rows.with_columns(
        flags=flags(plan, first_ms, end_ms),
        in_default=coverable & (pl.col("proposed") <= pl.col("low")),
    )


def of_user(level: str) -> pl.Expr:
    """Return the column that is true for the budget of a user's clients without a client-id, among budgets of
    users with client-ids.
    """
    nameless = pl.col("client_id").is_null() & pl.col("client_id_prefix").is_null()
    return pl.lit(level == PAIRS) & nameless


def floor(plan: Plan) -> pl.Expr:
    """Return the column with the lowest limit to propose."""
    return _by_quota({key.value: plan.floor(key) for key in plan.quotas})


def _by_quota(values: Mapping[str, float]) -> pl.Expr:
    return pl.col("quota").replace_strict(values, return_dtype=pl.Float64)


def _up(rate: pl.Expr) -> pl.Expr:
    return _steps(rate).ceil() / _per_unit()


def _down(rate: pl.Expr) -> pl.Expr:
    return _steps(rate).floor() / _per_unit()


def _steps(rate: pl.Expr) -> pl.Expr:
    """Return a rate in the steps to which proposals are rounded: whole bytes/s, hundredths of other units.
    Digits beyond six decimals of a step are rounding errors, and are removed.
    """
    return (pl.min_horizontal(rate, pl.lit(_LARGEST)) * _per_unit()).round(6)


def _per_unit() -> pl.Expr:
    is_bytes = pl.col("quota").is_in([key.value for key in BYTES])
    return pl.when(is_bytes).then(1.0).otherwise(float(STEPS_PER_UNIT))


def left_out(user: str | None, client_id: str | None) -> str | None:
    """Return the reason why an entity cannot have an entry, because of its user or client-id; None if it can
    have one. A part that the entity does not have is None.
    """
    reasons = [_unsayable(name) for name in (user, client_id) if name is not None]
    return next((reason for reason in reasons if reason is not None), None)


def _unsayable(name: str) -> str | None:
    if name == "":
        return WITHOUT
    if "\ufffd" in name:
        return NO_TEXT
    if name == DEFAULT_MARKER:
        return LITERAL_DEFAULT
    if name == OVERFLOW:
        return OVERFLOW_NAME
    return LONG if SHORTENED.fullmatch(name) else None
