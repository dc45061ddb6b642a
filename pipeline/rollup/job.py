"""Roll up usage records into hours and days of each entity at each broker, for each day with new records.

A stream over the table of usage records finds the days of new records. Each of these days is computed from
all of its records, and replaced in one version of the table. So a job that is killed and run again computes
the same rows, and readers never see a part of a day. If two roll-ups write the same days at the same time,
one of them computes its days again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from math import ceil
from typing import Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType

from weir.pipeline import lake as delta
from weir.pipeline import tables
from weir.pipeline.lake import Lake
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.rollup.columns import HOUR_S, PERIODS, ROLLUP
from weir.pipeline.rollup.compute import rolled

WINDOW_S: Final = 10
"""Length (s) of a window of the roll-up. A broker measures byte rates over about the same time: 11 samples
(quota.window.num) of 1 s (quota.window.size.seconds), the last of them incomplete.
"""
_RECORDS_AT_ONCE: Final = 100_000_000
"""Maximum number of usage records in one pass over several days; a larger day has a pass of its own."""
_RECORDS_PER_TASK: Final = 500_000
_TEXTS: Final = (field.name for field in ROLLUP.fields if isinstance(field.dataType, StringType))
_PARQUET: Final = {
    "parquet.enable.dictionary": "false",  # numbers repeat too rarely to be worth a dictionary
    **{f"parquet.enable.dictionary#{name}": "true" for name in _TEXTS},
}
"""Settings of the files of roll-ups."""
_FILES_AT_ONCE: Final = 1_000_000
"""Maximum number of new files whose days one batch of the stream finds: in general, all of them."""
_NAMED: Final = 10
"""Maximum number of days that a remark for the operator lists one by one; more days become a range."""


class Day(NamedTuple):
    """One day (UTC) of a cluster."""

    cluster: str
    day: date


class _Size(NamedTuple):
    """Size of a day's usage records."""

    records: int
    longest_ms: int
    """Longest interval (ms) that one of the records covers."""


class _Job:
    """One run of the roll-up, and the days that it has rolled up."""

    def __init__(self, spark: SparkSession, lake: Lake, window_s: int) -> None:
        self.spark, self.lake, self.window_s = spark, lake, window_s
        self.done: dict[Day, _Size] = {}

    def usage(self, days: Sequence[Day]) -> DataFrame:
        return delta.read(self.spark, self.lake.usage, tables.USAGE).where(condition(days))

    def take(self, new: DataFrame, _batch: int) -> None:
        """Roll up the days of new usage records."""
        self.roll_days(_days(new))

    def roll_days(self, days: Sequence[Day]) -> None:
        if days:
            self.roll(_sizes(self.usage(days)))

    def roll(self, sizes: dict[Day, _Size]) -> None:
        """Compute these days from all of their records, and replace their rows."""
        for days in _passes(sizes):
            tasks_per_day = ceil(max(sizes[day].records for day in days) / _RECORDS_PER_TASK)
            rows = rolled(self.usage(days), self.window_s, len(days), tasks_per_day)
            delta.replace(rows, self.lake.rollup, condition(days))
            self.done |= {day: sizes[day] for day in days}

    def follow(self) -> None:
        """Roll up the days of the records that were added since the last run."""
        new = (
            self.spark.readStream.format("delta")
            .option("skipChangeCommits", True)  # deleted records leave the roll-ups as they are
            .option("maxFilesPerTrigger", _FILES_AT_ONCE)
            .load(self.lake.usage)
        )
        query = (
            new.writeStream.queryName("rollup")
            .foreachBatch(self.take)
            .option("checkpointLocation", self.lake.path("checkpoint", "rollup", "usage"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def outdated(self) -> list[Day]:
        """Return the days that were rolled up with windows of another length."""
        rows = delta.read(self.spark, self.lake.rollup, ROLLUP)
        return _days(rows.where(fn.col("window_s") != self.window_s))

    def written(self) -> dict[str, int]:
        """Return the number of the rows of each kind of period that are there for the days of this run."""
        if not self.done:
            return dict.fromkeys(PERIODS, 0)
        rows = delta.read(self.spark, self.lake.rollup, ROLLUP).where(condition([*self.done]))
        counts = dict(map(tuple, rows.groupBy("seconds").count().collect()))
        return {name: counts.get(seconds, 0) for name, seconds in PERIODS.items()}


def rollup(
    spark: SparkSession,
    lake: Lake,
    *,
    window_s: int = WINDOW_S,
    days: tuple[date, date] | None = None,
    again: bool = False,
) -> Outcome:
    """Roll up the days with new usage records, and days whose windows have another length than `window_s`
    (s). With `days` (first, last), roll up each of these days instead; with `again`, each day that has usage
    records.

    Raises PipelineError if an hour is not a whole number of windows, or another roll-up writes the same days
    at the same time.
    """
    if window_s < 1 or HOUR_S % window_s:
        raise PipelineError(f"windows of {window_s} s do not fill an hour: take 1, 5, 10, 30 or 60 s")
    usage = delta.read(spark, lake.usage, tables.USAGE)
    if days is not None:
        usage = usage.where(fn.col("day").between(*map(fn.lit, days)))
    job = _Job(spark, lake, window_s)
    for name, value in _PARQUET.items():
        spark.conf.set(name, value)
    try:
        if again or days is not None:
            job.roll(sizes := _sizes(usage))
            present = [*sizes]
        elif present := _days(usage):
            job.follow()
            job.roll_days([day for day in job.outdated() if day in present])
    except PySparkException as error:
        raise _explained(error) from None
    counts = {f"{name}s of entities": count for name, count in job.written().items()}
    return Outcome(
        "rollup",
        read={"records": sum(size.records for size in job.done.values()), "days": len(job.done)},
        wrote=counts,
        where={"records": lake.usage, **dict.fromkeys(counts, lake.rollup)},
        notes=tuple(_notes(job, present)),
    )


def condition(days: Sequence[Day]) -> str:
    """Return the SQL condition that selects the rows of these days."""
    by_cluster: dict[str, list[str]] = {}
    for each in days:
        by_cluster.setdefault(each.cluster, []).append(f"DATE'{each.day}'")
    return " OR ".join(
        f"(cluster = {delta.sql_text(cluster)} AND day IN ({', '.join(dates)}))"
        for cluster, dates in by_cluster.items()
    )


def _days(rows: DataFrame) -> list[Day]:
    return sorted(Day(*row) for row in rows.select("cluster", "day").distinct().collect())


def _sizes(usage: DataFrame) -> dict[Day, _Size]:
    longest_ms = fn.coalesce(fn.max("interval_ms"), fn.lit(0))
    rows = usage.groupBy("cluster", "day").agg(fn.count("*"), longest_ms).collect()
    return {Day(cluster, day): _Size(*size) for cluster, day, *size in sorted(rows)}


def _passes(sizes: dict[Day, _Size]) -> Iterator[list[Day]]:
    """Group days into passes of bounded size, so that shuffles are small and a kill loses one pass."""
    some, records = list[Day](), 0
    for day, size in sizes.items():
        if some and records + size.records > _RECORDS_AT_ONCE:
            yield some
            some, records = [], 0
        some.append(day)
        records += size.records
    if some:
        yield some


def _explained(error: PySparkException) -> Exception:
    """Return a PipelineError for an error that a second roll-up causes; return any other error unchanged."""
    if any(sign in str(error) for sign in ("DELTA_CONCURRENT", "CONCURRENT_STREAM_LOG_UPDATE")):
        return PipelineError("another rollup is running on this lake: let one end before the next begins")
    return error


def _notes(job: _Job, present: Sequence[Day]) -> Iterator[str]:
    if not present:
        yield "no usage found: run ingest first, or check --lake and --days"
        return
    if job.done:
        yield f"rolled up: {_named(sorted(job.done))}"
    if unchanged := [day for day in present if day not in job.done]:
        yield f"unchanged: {_named(unchanged)}"
    longest_ms = max((size.longest_ms for size in job.done.values()), default=0)
    if longest_ms > job.window_s * 1000:
        yield (
            f"some records span {longest_ms / 1000:g} s, longer than windows of {job.window_s} s, and "
            "count as if all had happened in their first: percentiles are too high; take longer windows"
        )


def _named(days: Sequence[Day]) -> str:
    """Return the days in words, with their clusters if there are several."""
    clusters = {each.cluster for each in days}
    several = len(clusters) > 1
    if len(days) > _NAMED:
        dates = sorted({each.day for each in days})
        more = f", of {len(clusters)} clusters" if several else ""
        return f"{len(dates)} days from {dates[0]} to {dates[-1]}{more}"
    return ", ".join(f"{each.cluster} {each.day}" if several else str(each.day) for each in days)
