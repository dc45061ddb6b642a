"""Query the tables for the report.

Spark computes all sums. This process receives a bounded number of rows: `top` entities, `HOURS_MAX` or
`DAYS_MAX` columns, and constants such as those below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as sql

from weir.pipeline import tables
from weir.pipeline.ingest.ledger import LEDGER
from weir.pipeline.report.model import HOUR_MS, Broker, Findings, Ingested, Span, Spread
from weir.pipeline.report.plans import recommendations, replay
from weir.pipeline.report.use import Use, amounts, entity_totals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from weir.pipeline.lake import Lake

BATCHES: Final = 20
"""Maximum number of batches with late or malformed records that the report lists for each kind of records:
the latest batches.
"""
REASONS: Final = 10
BROKERS: Final = 50
KINDS: Final = ("usage", "trace")
_COUNTS: Final = ("read", "good", "late", "malformed")
_BROKERS_SUMS: Final = ("records", "requests", "bytes_in", "bytes_out", "request_time_s")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a report."""

    days: tuple[date, date] | None = None
    """First and last day (UTC); None for all days."""
    top: int = 30
    """Number of entities to show in each chart; all others are summed up."""
    level: str = "user-client-id"
    """Level of the entities to show, one of `tables.LEVELS`."""


def find(spark: SparkSession, lake: Lake, wanted: Wanted) -> Findings:
    """Query all tables of the pipeline, and return the values that the report shows."""
    found = Findings(
        wanted.level,
        wanted.top,
        recommendations=recommendations(spark, lake, wanted.top),
        replay=replay(spark, lake, wanted.days, wanted.top),
        ingested=tuple(each for kind in KINDS if (each := _ingested(spark, lake, kind)) is not None),
    )
    span = _span(_rolled(spark, lake, wanted, "hour"))
    return found if span is None else _with_use(found, spark, lake, wanted, span)


def _with_use(found: Findings, spark: SparkSession, lake: Lake, wanted: Wanted, span: Span) -> Findings:
    rows = amounts(_rolled(spark, lake, wanted, "hour" if span.columns.step_ms == HOUR_MS else "day"))
    totals = entity_totals(rows).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        use = Use(spark, rows, totals, span, wanted.top)
        return replace(
            found,
            overview=use.overview(),
            talkers=use.talkers(),
            heats=use.heats(),
            throttled=use.throttled(),
            spread=_spread(spark, lake, wanted, use),
        )
    finally:
        totals.unpersist()


def _rolled(spark: SparkSession, lake: Lake, wanted: Wanted, period: str) -> DataFrame:
    rows = tables.read(spark, lake.rollup(period), tables.ROLLUP)
    return _within(rows, wanted).where(sql.col("level") == wanted.level)


def _within(rows: DataFrame, wanted: Wanted) -> DataFrame:
    """Return the rows of the days in `wanted.days`; Spark reads only the partitions of these days."""
    return rows if wanted.days is None else rows.where(sql.col("day").between(*wanted.days))


def _span(hours: DataFrame) -> Span | None:
    end = sql.col("start_ms") + sql.col("seconds") * 1000
    found = hours.agg(sql.min("start_ms"), sql.max(end)).first()
    return None if found is None or found[0] is None else Span(found[0], found[1])


def _spread(spark: SparkSession, lake: Lake, wanted: Wanted, use: Use) -> Spread | None:
    records = _within(tables.read(spark, lake.usage, tables.USAGE), wanted)
    each = records.groupBy("broker").agg(
        sql.count(sql.lit(1)).alias("records"),
        *(_sum(name).alias(name) for name in ("requests", "bytes_in", "bytes_out")),
        (_sum("request_time_us") / 1e6).alias("request_time_s"),
    )
    everywhere = Window.partitionBy()  # few rows: one per broker
    sums = (sql.sum(name).over(everywhere).alias(f"all_{name}") for name in _BROKERS_SUMS)
    all_brokers = sql.count(sql.lit(1)).over(everywhere).alias("all_brokers")
    order = (sql.desc(sql.col("bytes_in") + sql.col("bytes_out")), sql.col("broker"))
    rows = each.select("*", *sums, all_brokers).orderBy(*order).limit(BROKERS).collect()
    if not rows:
        return None
    brokers = tuple(
        Broker(broker=row["broker"], **{name: row[name] for name in _BROKERS_SUMS}) for row in rows
    )
    return Spread(brokers, *_rest(rows[0], brokers), use.uneven())


def _sum(name: str) -> Column:
    return sql.coalesce(sql.sum(name), sql.lit(0))


def _rest(sums: Row, shown: tuple[Broker, ...]) -> tuple[Broker | None, int]:
    """Return the summed usage of the brokers that are not shown, and the number of these brokers; (None, 0)
    if all are shown.
    """
    count = sums["all_brokers"] - len(shown)
    left = {name: sums[f"all_{name}"] - sum(getattr(b, name) for b in shown) for name in _BROKERS_SUMS}
    return (Broker(broker=-1, **left) if count else None), count


def _ingested(spark: SparkSession, lake: Lake, kind: str) -> Ingested | None:
    ledger = tables.read(spark, lake.ledger(kind), LEDGER)
    counts = ledger.agg(
        sql.count(sql.lit(1)).alias("batches"), *(_sum(name).alias(name) for name in _COUNTS)
    ).collect()[0]
    if not counts["batches"]:
        return None
    bad = ledger.where((sql.col("late") > 0) | (sql.col("malformed") > 0))
    latest = bad.orderBy(sql.desc("batch")).select("batch", "late", "malformed").limit(BATCHES)
    lines = tables.read(spark, lake.malformed(kind), tables.MALFORMED)
    reasons = lines.groupBy("reason").count().orderBy(sql.desc("count"), "reason").limit(REASONS)
    return Ingested(
        kind,
        **counts.asDict(),
        bad_batches=tuple((row[0], row[1] or 0, row[2] or 0) for row in latest.collect()),
        reasons=tuple((row[0] or "", row[1]) for row in reasons.collect()),
    )
