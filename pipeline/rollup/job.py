"""Roll up usage records into hours and days of each entity, for each day whose files have changed.

A day's row in the table `rolled` is written last and completes the day. If the job is killed before, the next
run computes the day again, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import date
from math import ceil
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import functions as sql

from weir.pipeline import tables
from weir.pipeline.files import Files
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.rollup.days import Source, sources
from weir.pipeline.rollup.periods import HOUR_S, PERIODS, periods
from weir.pipeline.rollup.windows import windows
from weir.pipeline.tables import LEVELS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from weir.pipeline.lake import Lake

WINDOW_S: Final = 10
"""Length (s) of a window, about that of a broker's byte rate: quota.window.num 11 times
quota.window.size.seconds 1, minus the sample that has just begun.
"""
_BYTES_AT_ONCE: Final = 4 << 30
"""Maximum size (bytes) of Parquet that one pass over several days reads; a larger day has a pass of its
own.
"""
_BYTES_PER_TASK: Final = 16 << 20
"""Size (bytes) of Parquet files per Spark partition, from which the number of partitions is computed."""
_NAMED: Final = 10
"""Maximum number of days that a remark lists one by one; more days become a range."""


@dataclass(slots=True)
class _Done:
    records: int = 0
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PERIODS, 0))
    longest_ms: int = 0
    """Longest interval (ms) that any usage record covers."""


def rollup(
    spark: SparkSession,
    lake: Lake,
    *,
    window_s: int = WINDOW_S,
    days: tuple[date, date] | None = None,
    again: bool = False,
) -> Outcome:
    """Roll up the days whose usage files have changed; all days with usage if `again`. `days` is the first
    and last day to consider, None for all. Windows are `window_s` (s) long.

    Raises PipelineError if an hour is not a whole number of windows, or another roll-up is running on this
    lake.
    """
    if window_s < 1 or HOUR_S % window_s:
        raise PipelineError(f"windows of {window_s} s do not fill an hour: take 1, 5, 10, 30 or 60 s")
    found = sources(spark, lake, window_s, days)
    chosen = [source for source in found if again or source.changed]
    done = _Done()
    with Files(spark).locked(lake.lock("rollup"), "rollup") if chosen else nullcontext():
        for some in _passes(chosen):
            _roll(spark, lake, some, window_s, done)
    return Outcome(
        "rollup",
        read={"records": done.records, "files": sum(source.files for source in chosen)},
        wrote={f"{name}s of entities": count for name, count in done.rows.items()},
        where={"records": lake.usage, **{f"{name}s of entities": lake.rollup(name) for name in PERIODS}},
        notes=tuple(_notes(found, chosen, done, window_s)),
    )


def usage_of(spark: SparkSession, lake: Lake, days: Sequence[date]) -> DataFrame:
    """Return the usage records of these days; Spark opens no files of other days."""
    return tables.read(spark, lake.usage, tables.USAGE).where(sql.col("day").isin(*days))


def _passes(chosen: Sequence[Source]) -> Iterator[list[Source]]:
    """Group the days into passes of bounded size, so that shuffles stay small, and completed passes survive a
    kill.
    """
    some: list[Source] = []
    for source in chosen:
        if some and sum(each.bytes for each in some) + source.bytes > _BYTES_AT_ONCE:
            yield some
            some = []
        some.append(source)
    if some:
        yield some


def _roll(spark: SparkSession, lake: Lake, some: Sequence[Source], window_s: int, done: _Done) -> None:
    days = [source.day for source in some]
    size = sum(source.bytes for source in some)
    partitions = max(spark.sparkContext.defaultParallelism, ceil(size / _BYTES_PER_TASK))
    with _kept(windows(usage_of(spark, lake, days), window_s * 1000, partitions)) as kept:
        records, longest_ms = _read(kept)  # materializes the rows, so that Spark knows their partitioning
        for name, seconds in PERIODS.items():
            tables.replace(periods(kept, seconds, window_s), lake.rollup(name), "day")
            done.rows[name] += _count(spark, lake, name, days)
    done.records += sum(records.values())
    done.longest_ms = max(done.longest_ms, longest_ms)
    rolled = [
        (each.batches, each.files, each.bytes, each.digest, window_s, records.get(each.day, 0), each.day)
        for each in some
    ]
    tables.replace(spark.createDataFrame(rolled, tables.ROLLED).coalesce(1), lake.rolled, "day")


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows on disk during the block, so that Spark computes them only once; yield the rows."""
    kept = rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept
    finally:
        kept.unpersist()


def _read(kept: DataFrame) -> tuple[dict[date, int], int]:
    """Return the number of usage records by day, and the longest interval (ms) of any record. Each record is
    counted once, in the window of its pair of user and client-id.
    """
    pairs = kept.where(sql.col("level") == LEVELS.index("user-client-id"))
    rows = pairs.groupBy(_day("window_ms").alias("day")).agg(
        sql.sum("records").alias("records"), sql.max("interval_ms").alias("longest_ms")
    )
    found = rows.collect()
    return {row["day"]: row["records"] for row in found}, max((row["longest_ms"] for row in found), default=0)


def _day(name: str) -> Column:
    return sql.to_date(sql.timestamp_millis(name))


def _count(spark: SparkSession, lake: Lake, name: str, days: Sequence[date]) -> int:
    """Return the number of roll-up rows of these days, which Spark reads from the files' footers."""
    return tables.read(spark, lake.rollup(name), tables.ROLLUP).where(sql.col("day").isin(*days)).count()


def _notes(found: Sequence[Source], chosen: Sequence[Source], done: _Done, window_s: int) -> Iterator[str]:
    if not found:
        yield "no usage found: run ingest first, or check --lake and --days"
        return
    unchanged = [source.day for source in found if source not in chosen]
    if chosen:
        yield f"rolled up: {_named([source.day for source in chosen])}"
    if unchanged:
        yield f"unchanged: {_named(unchanged)}"
    if done.longest_ms > window_s * 1000:
        yield (
            f"some records span {done.longest_ms / 1000:g} s, longer than windows of {window_s} s, and "
            "count as if all had happened in their first: percentiles are too high; take longer windows"
        )


def _named(days: Sequence[date]) -> str:
    if len(days) > _NAMED:
        return f"{len(days)} days from {days[0]} to {days[-1]}"
    return ", ".join(map(str, days))
