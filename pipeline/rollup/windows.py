"""Sum up usage records into windows of a few seconds, by entity and broker.

A window is as long as the window of a broker's quota, so that its rate is comparable to a quota. A record
counts in the window in which its interval began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import polars as pl
from pyspark.sql import functions as sql

from weir.pipeline.rollup.columns import (
    AMOUNTS,
    ANY_BROKER,
    CHARGED,
    ENTITY,
    LEVELS,
    OF_MUTATIONS,
    SUMS,
    THROTTLES,
    TOTALS,
    VIOLATIONS,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BY_QUOTA: Final = (*THROTTLES, *VIOLATIONS)
WINDOW: Final = (*ENTITY, "broker", "window_ms")
"""Columns that identify a window of an entity at a broker. `level` is an index into `LEVELS`; the name that
the level lacks is "".
"""
_PAIR: Final = tuple(name for name in WINDOW if name != "level")


def needed(usage: DataFrame, window_ms: int) -> DataFrame:
    """Return the columns of usage records that windows need, without nulls except `by_quota`: an array of
    the columns `BY_QUOTA`, null if all are 0, as in most records.
    """
    by_quota = [_count(name) for name in BY_QUOTA]
    any_above_0 = sql.greatest(*by_quota) > 0
    return usage.select(
        *(sql.coalesce(name, sql.lit("")).alias(name) for name in ("cluster", "user", "client_id")),
        sql.coalesce("broker", sql.lit(ANY_BROKER)).alias("broker"),
        (sql.col("time_ms") - sql.pmod("time_ms", sql.lit(window_ms))).alias("window_ms"),
        *(_count(name).alias(name) for name in TOTALS),
        *(
            sql.when(sql.col("api") == group.value, _count("charged_bytes")).otherwise(0).alias(name)
            for name, group in CHARGED.items()
        ),
        sql.when(any_above_0, sql.array(*by_quota)).alias("by_quota"),
    )


def _count(name: str) -> Column:
    return sql.coalesce(name, sql.lit(0))


def windows(records: pl.DataFrame) -> pl.DataFrame:
    """Return windows (columns `WINDOW` and `SUMS`) of all levels, from the columns of `needed`. Mutations are
    counted at `ANY_BROKER`, and so are throttle times that they caused.
    """
    by_quota = (
        pl.col("by_quota").list.get(index, null_on_oob=True).fill_null(0).alias(name)
        for index, name in enumerate(BY_QUOTA)
    )
    flat = records.select(*_PAIR, *AMOUNTS, *by_quota)
    pairs = _mutations_apart(_summed(flat, _PAIR))
    return pl.concat([_of_level(pairs, level) for level in LEVELS])


def merged(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return windows in which each window occurs once."""
    return _summed(pl.concat(parts), WINDOW)


def _summed(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    return rows.lazy().group_by(*keys).agg(pl.col(SUMS).sum()).collect(engine="streaming")


def _mutations_apart(pairs: pl.DataFrame) -> pl.DataFrame:
    """Move the columns `OF_MUTATIONS` to rows of their own."""
    with_mutations = pairs.filter(pl.any_horizontal(pl.col(OF_MUTATIONS) > 0))
    at_any_broker = pl.lit(ANY_BROKER, pairs.schema["broker"]).alias("broker")
    others = (name for name in SUMS if name not in OF_MUTATIONS)
    apart = with_mutations.with_columns(at_any_broker, *(_zero(pairs, name) for name in others))
    return pl.concat([pairs.with_columns(_zero(pairs, name) for name in OF_MUTATIONS), apart])


def _zero(rows: pl.DataFrame, name: str) -> pl.Expr:
    return pl.lit(0, rows.schema[name]).alias(name)


def _of_level(pairs: pl.DataFrame, level: str) -> pl.DataFrame:
    """Return the windows of one level. `pairs` stay as they are, because `merged` sums up later."""
    index = pl.lit(LEVELS.index(level), pl.Int8).alias("level")
    match level:
        case "user":
            pairs = _summed(pairs.with_columns(client_id=pl.lit("")), _PAIR)
        case "client-id":
            pairs = _summed(pairs.with_columns(user=pl.lit("")), _PAIR)
    return pairs.select(index, *_PAIR, *SUMS)
