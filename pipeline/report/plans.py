"""Query the tables of the recommendation and of the replay for the report."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from weir.pipeline import tables
from weir.pipeline.report.model import Candidate, Recommendation, Recommended, Replay, Replayed
from weir.pipeline.report.names import Entity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from weir.pipeline.lake import Lake

CANDIDATES: Final = 6
"""Maximum number of replayed candidates that the report shows; the recorded throttle times count as one."""
RECORDED: Final = "recorded"
FLAGS: Final = 20
QUOTAS: Final = tuple(tables.BY_QUOTA.names)
_ENTITY: Final = ("user", "client_id", "client_id_prefix")


def recommendations(spark: SparkSession, lake: Lake, top: int) -> tuple[Recommendation, ...]:
    """Return the recommendation of each quota that has proposals, in Kafka's order of quotas."""
    rows = tables.read(spark, lake.recommendation, tables.RECOMMENDATION)
    rows = rows.where(sql.col("quota").isin(*tables.RATES))
    current, proposed = sql.col("current"), sql.col("proposed")
    counts = rows.groupBy("quota").agg(
        sql.count(sql.lit(1)).alias("count"),
        sql.count_if(proposed > current).alias("raised"),
        sql.count_if(proposed < current).alias("lowered"),
        sql.count_if(current.isNull()).alias("new"),
    )
    by_quota = {row["quota"]: row for row in counts.collect()}
    if not by_quota:
        return ()
    largest, flags = _largest(rows, top), _flags(rows)
    return tuple(
        Recommendation(
            rows=tuple(_recommended(row) for row in largest if row["quota"] == quota),
            flags=tuple((row["flag"], row["count"]) for row in flags if row["quota"] == quota),
            **by_quota[quota].asDict(),
        )
        for quota in tables.RATES
        if quota in by_quota
    )


def _largest(rows: DataFrame, top: int) -> list[Row]:
    """Return the rows of the `top` entities with the highest usage, for each quota."""
    of_quota = Window.partitionBy("quota").orderBy(sql.desc_nulls_last("used"), *_entity(rows))
    ranked = rows.withColumn("rank", sql.row_number().over(of_quota))
    return ranked.where(sql.col("rank") <= top).orderBy("rank").collect()


def _flags(rows: DataFrame) -> list[Row]:
    """Return rows with the number of proposals by quota and flag, the most frequent first."""
    flags = rows.select("quota", sql.explode("flags").alias("flag")).groupBy("quota", "flag").count()
    return flags.orderBy(sql.desc("count"), "flag").limit(FLAGS).collect()


def _entity(rows: DataFrame) -> list[str]:
    return [name for name in _ENTITY if name in rows.columns]


def _of(row: Row) -> Entity:
    return Entity(**{name: row[name] for name in _ENTITY if name in row})


def _recommended(row: Row) -> Recommended:
    return Recommended(
        _of(row),
        used=row["used"],
        current=row["current"],
        proposed=row["proposed"],
        in_default=bool(row["in_default"]),
        flags=tuple(row["flags"] or ()),
        reason=row["reason"] or "",
    )


def replay(spark: SparkSession, lake: Lake, days: tuple[date, date] | None, top: int) -> Replay | None:
    """Return the comparison of candidate quota files in the wanted days, with the recorded throttle times
    first; None if these days have no replay.
    """
    rows = tables.read(spark, lake.replay, tables.REPLAY)
    if days is not None:
        rows = rows.where(sql.to_date(sql.timestamp_millis("start_ms")).between(*days))
    count, candidates = _candidates(rows)
    if not candidates:
        return None
    names = [candidate.name for candidate in candidates]
    shown = rows.where(sql.col("candidate").isin(*names))
    seconds = [sql.col(_seconds(index)) for index in range(len(names))]
    longest = sql.greatest(*seconds, sql.lit(0.0))
    waited = _by_entity(shown, names).where(longest > 0)
    sums = waited.agg(sql.count(sql.lit(1)), *map(sql.sum, seconds)).collect()[0]
    largest = waited.orderBy(sql.desc(longest), *_entity(rows)).limit(top).collect()
    found = tuple(Replayed(_of(row), tuple(row[-len(names) :])) for row in largest)
    return Replay(
        candidates=candidates,
        left_out=count - len(names),
        rows=found,
        rest=_rest(sums, found),
        rest_count=sums[0] - len(found),
    )


def _candidates(rows: DataFrame) -> tuple[int, tuple[Candidate, ...]]:
    """Return the number of all candidates, and the sums (throttled time, violations, timeouts) of the
    candidates that the report shows.
    """
    sums = [
        sql.coalesce(sql.sum(sql.when(sql.col("quota") == quota, sql.col(name))), sql.lit(0)).alias(
            f"{name} {quota}"
        )
        for quota in QUOTAS
        for name in ("throttled_s", "violations", "given_up")
    ]
    each = rows.groupBy("candidate").agg(*sums)
    counted = each.withColumn("count", sql.count(sql.lit(1)).over(Window.partitionBy()))
    order = (sql.desc(sql.col("candidate") == RECORDED), sql.col("candidate"))
    found = counted.orderBy(*order).limit(CANDIDATES).collect()
    candidates = (
        Candidate(
            row["candidate"],
            {quota: row[f"throttled_s {quota}"] for quota in QUOTAS},
            violations=sum(row[f"violations {quota}"] for quota in QUOTAS),
            given_up=sum(row[f"given_up {quota}"] for quota in QUOTAS),
        )
        for row in found
    )
    return found[0]["count"] if found else 0, tuple(candidates)


def _rest(sums: Row, shown: tuple[Replayed, ...]) -> tuple[float, ...]:
    """Return the throttled time (s) under each candidate, summed over the entities that are not shown. A
    negative rounding error becomes 0.
    """
    count, *seconds = sums
    if count == len(shown):
        return (0.0,) * len(seconds)
    return tuple(
        max(everybody - sum(row.throttled_s[index] for row in shown), 0.0)
        for index, everybody in enumerate(seconds)
    )


def _seconds(index: int) -> str:
    """Return the name of the column that has the throttled time (s) under the candidate with this index."""
    return f"s_{index}"


def _by_entity(rows: DataFrame, names: list[str]) -> DataFrame:
    """Return one row per entity of a budget, with its throttled time (s) under each candidate in the columns
    `_seconds`.
    """
    seconds = [
        sql.sum(sql.when(sql.col("candidate") == name, sql.col("throttled_s")).otherwise(0.0))
        for name in names
    ]
    return rows.groupBy(*_entity(rows)).agg(
        *(column.alias(_seconds(index)) for index, column in enumerate(seconds))
    )
