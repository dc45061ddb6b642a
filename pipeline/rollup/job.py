"""Roll up usage records into hours and days of each entity at each broker, for each day with new records.

A stream over the table of usage records finds the days of new records. Each of these days is computed from
all of its records, and replaced in one version of the table. So a job that is killed and run again computes
the same rows, and readers never see a part of a day. If two roll-ups write the same days at the same time,
one of them computes its days again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from math import ceil
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType

from weir.pipeline import lake as delta
from weir.pipeline import tables
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.rollup.columns import HOUR_S, PERIODS, ROLLUP
from weir.pipeline.rollup.spread import rolled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from weir.pipeline.lake import Lake

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


@dataclass(frozen=True, slots=True, order=True)
class Day:
    """One day (UTC) of a cluster."""

    cluster: str
    day: date


@dataclass(frozen=True, slots=True)
class _Source:
    day: Day
    records: int
    longest_ms: int
    """Longest interval (ms) that one of the usage records covers."""


@dataclass(slots=True)
class _Job:
    """One run of the roll-up, and the counts of its outcome."""

    spark: SparkSession
    lake: Lake
    window_s: int
    done: list[_Source] = field(default_factory=list)

    def take(self, new: DataFrame, _batch: int) -> None:
        """Roll up the days of new usage records."""
        self.roll_days(_days(new))

    def roll_days(self, days: Sequence[Day]) -> None:
        """Roll up these days."""
        if days:
            usage = delta.read(self.spark, self.lake.usage, tables.USAGE)
            self.roll(_sources(usage.where(condition(days))))

    def roll(self, sources: Sequence[_Source]) -> None:
        """Compute these days from all of their records, and replace their rows."""
        usage = delta.read(self.spark, self.lake.usage, tables.USAGE)
        for some in _passes(sources):
            of_pass = condition([source.day for source in some])
            tasks_per_day = ceil(max(source.records for source in some) / _RECORDS_PER_TASK)
            rows = rolled(usage.where(of_pass), self.window_s, len(some), tasks_per_day)
            delta.replace(rows, self.lake.rollup, of_pass)
            self.done += some


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
            job.roll(sources := _sources(usage))
            present = [source.day for source in sources]
        elif present := _days(usage):
            _follow(job)
            job.roll_days(_outdated(job, present))
    except PySparkException as error:
        raise _explained(error) from None
    return _outcome(job, present)


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
    found = rows.select("cluster", "day").distinct().collect()
    return sorted(Day(row["cluster"], row["day"]) for row in found)


def _follow(job: _Job) -> None:
    """Roll up the days of the records that were added since the last run."""
    new = (
        job.spark.readStream.format("delta")
        .option("skipChangeCommits", True)  # deleted records leave the roll-ups as they are
        .option("maxFilesPerTrigger", _FILES_AT_ONCE)
        .load(job.lake.usage)
    )
    query = (
        new.writeStream.queryName("rollup")
        .foreachBatch(job.take)
        .option("checkpointLocation", job.lake.checkpoint("rollup", "usage"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _outdated(job: _Job, present: Sequence[Day]) -> list[Day]:
    """Return the days that were rolled up with windows of another length."""
    rows = delta.read(job.spark, job.lake.rollup, ROLLUP)
    return [day for day in _days(rows.where(fn.col("window_s") != job.window_s)) if day in present]


def _sources(usage: DataFrame) -> list[_Source]:
    rows = usage.groupBy("cluster", "day").agg(
        fn.count(fn.lit(1)).alias("records"), fn.max("interval_ms").alias("longest_ms")
    )
    found = sorted(rows.collect(), key=lambda row: (row["cluster"], row["day"]))
    return [_Source(Day(row["cluster"], row["day"]), row["records"], row["longest_ms"] or 0) for row in found]


def _passes(sources: Sequence[_Source]) -> Iterator[list[_Source]]:
    """Group the days into passes of bounded size, so that shuffles stay small, and completed passes survive a
    kill.
    """
    some: list[_Source] = []
    for source in sources:
        if some and sum(each.records for each in some) + source.records > _RECORDS_AT_ONCE:
            yield some
            some = []
        some.append(source)
    if some:
        yield some


def _explained(error: PySparkException) -> Exception:
    """Return a PipelineError for an error that a second roll-up causes; return any other error unchanged."""
    if any(sign in str(error) for sign in ("DELTA_CONCURRENT", "CONCURRENT_STREAM_LOG_UPDATE")):
        return PipelineError("another rollup is running on this lake: let one end before the next begins")
    return error


def _outcome(job: _Job, present: Sequence[Day]) -> Outcome:
    return Outcome(
        "rollup",
        read={
            "records": sum(source.records for source in job.done),
            "days": len({source.day for source in job.done}),
        },
        wrote={f"{name}s of entities": count for name, count in _written(job).items()},
        where={"records": job.lake.usage, **{f"{name}s of entities": job.lake.rollup for name in PERIODS}},
        notes=tuple(_notes(job, present)),
    )


def _written(job: _Job) -> dict[str, int]:
    """Return the number of the rows of each kind of period that are there for the days of this run."""
    if not job.done:
        return dict.fromkeys(PERIODS, 0)
    rows = delta.read(job.spark, job.lake.rollup, ROLLUP).where(
        condition([source.day for source in job.done])
    )
    counts = {row["seconds"]: row["count"] for row in rows.groupBy("seconds").count().collect()}
    return {name: counts.get(seconds, 0) for name, seconds in PERIODS.items()}


def _notes(job: _Job, present: Sequence[Day]) -> Iterator[str]:
    if not present:
        yield "no usage found: run ingest first, or check --lake and --days"
        return
    done = {source.day for source in job.done}
    unchanged = [day for day in present if day not in done]
    if done:
        yield f"rolled up: {_named(sorted(done))}"
    if unchanged:
        yield f"unchanged: {_named(unchanged)}"
    longest_ms = max((source.longest_ms for source in job.done), default=0)
    if longest_ms > job.window_s * 1000:
        yield (
            f"some records span {longest_ms / 1000:g} s, longer than windows of {job.window_s} s, and "
            "count as if all had happened in their first: percentiles are too high; take longer windows"
        )


def _named(days: Sequence[Day]) -> str:
    """Return the days in words, with their clusters if there are several."""
    if len(days) > _NAMED:
        dates = sorted(each.day for each in days)
        return f"{len(days)} days from {dates[0]} to {dates[-1]}"
    several = len({each.cluster for each in days}) > 1
    return ", ".join(f"{each.cluster} {each.day}" if several else str(each.day) for each in days)
