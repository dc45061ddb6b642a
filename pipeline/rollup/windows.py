"""Sum up usage records into windows of a few seconds, by entity and broker.

A window is as long as the window of a broker's quota, so that its rate is comparable to a quota. A record
counts in the window in which its interval began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from weir.pipeline.tables import BY_QUOTA, LEVELS
from weir.usage.groups import Group

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ENTITY: Final = ("level", "user", "client_id")
"""Columns that identify an entity. `level` is the index in `tables.LEVELS`. A part that the level lacks is
"", because a join would drop nulls.
"""
AMOUNTS: Final = (
    *("records", "requests", "bytes_in", "bytes_out", "produced_bytes", "fetched_bytes", "request_time_us"),
    *("mutations", "errors"),
)
"""Columns that are summed up over time, brokers and entities."""
THROTTLES: Final = tuple(f"throttle_ms_{field.name}" for field in BY_QUOTA.fields)
VIOLATIONS: Final = tuple(f"violations_{field.name}" for field in BY_QUOTA.fields)
SUMS: Final = (*AMOUNTS, *THROTTLES, *VIOLATIONS)
MOSTS: Final = ("interval_ms",)
"""Columns for which a merged row gets the maximum of the rows instead of the sum."""


def windows(usage: DataFrame, window_ms: int, partitions: int) -> DataFrame:
    """Return one row per entity, broker and window: `ENTITY`, `broker`, `window_ms` (beginning of the
    window), `SUMS`, `interval_ms` (longest interval of a record), `sessions`. `usage` has the columns of
    `tables.USAGE`.

    `sessions` of a pair is the maximum of its records; that of a user or client-id is the sum over its pairs.

    Rows are shuffled by time first, which spreads the records of a dominant entity over all tasks; pairs,
    users and client-ids then need no further shuffle before their sums. The result is shuffled by entity;
    each entity has at most one row per window and broker.
    """
    pairs = (
        by_time(usage, window_ms, partitions)
        .groupBy("user", "client_id", "broker", "window_ms")
        .agg(
            *(sql.sum(name).alias(name) for name in SUMS),
            *(sql.max(name).alias(name) for name in (*MOSTS, "sessions")),
        )
    )
    return _levels(pairs).repartition(partitions, *ENTITY)


def by_time(usage: DataFrame, window_ms: int, partitions: int) -> DataFrame:
    """Return the needed columns of usage records, with 0 for missing numbers, partitioned by window."""
    flat = usage.select(
        _text("user"),
        _text("client_id"),
        sql.coalesce("broker", sql.lit(-1)).alias("broker"),
        (sql.col("time_ms") - sql.pmod("time_ms", sql.lit(window_ms))).alias("window_ms"),
        sql.lit(1).alias("records"),
        *(_count(name) for name in ("requests", "bytes_in", "bytes_out", "mutations", "errors", "sessions")),
        _charged(Group.PRODUCE).alias("produced_bytes"),
        _charged(Group.FETCH).alias("fetched_bytes"),
        _count("request_time_us"),
        *(_count(f"throttle_ms.{field.name}", f"throttle_ms_{field.name}") for field in BY_QUOTA.fields),
        *(_count(f"violations.{field.name}", f"violations_{field.name}") for field in BY_QUOTA.fields),
        _count("interval_ms"),
    )
    return flat.repartition(partitions, "window_ms")


def _text(name: str) -> Column:
    return sql.coalesce(name, sql.lit("")).alias(name)


def _count(name: str, alias: str | None = None) -> Column:
    return sql.coalesce(name, sql.lit(0)).alias(alias or name)


def _charged(group: Group) -> Column:
    return sql.when(sql.col("api") == group.value, _count("charged_bytes")).otherwise(0)


def _levels(pairs: DataFrame) -> DataFrame:
    """Return the rows of all three levels: pairs of user and client-id, and their sums by user and by
    client-id; the entity is in the columns `ENTITY`.
    """
    nobody = sql.lit("")
    entities = sql.array(
        _entity("user-client-id", sql.col("user"), sql.col("client_id")),
        _entity("user", sql.col("user"), nobody),
        _entity("client-id", nobody, sql.col("client_id")),
    )
    by_level = pairs.select(sql.inline(entities), "broker", "window_ms", *SUMS, "sessions", *MOSTS)
    return by_level.groupBy(*ENTITY, "broker", "window_ms").agg(
        *(sql.sum(name).alias(name) for name in (*SUMS, "sessions")),
        *(sql.max(name).alias(name) for name in MOSTS),
    )


def _entity(level: str, user: Column, client_id: Column) -> Column:
    return sql.struct(
        sql.lit(LEVELS.index(level)).alias("level"), user.alias("user"), client_id.alias("client_id")
    )
