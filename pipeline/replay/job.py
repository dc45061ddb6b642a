"""Replay: compute which clients candidate quota files would have throttled, when, and for how long.

The table `replay` gets one row per budget and hour under each candidate, and the same rows with the recorded
throttle times. For clients that quotas held back in the recording, the throttle times are a range from models
of demand (`quotas.replay_demand`). docs/how-to/pipeline/replay.md describes the models and their accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dc_replace
from datetime import date
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from weir.pipeline.arrow import collected
from weir.pipeline.lake import Lake, empty, filled, read, replace, sql_text
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.replay.candidates import RECORDED, Candidate, drawn, not_replayed, read_candidates
from weir.pipeline.replay.charges import CLIENT_COLUMNS, by_quota
from weir.pipeline.replay.run import BudgetSettings, hours
from weir.pipeline.replay.summary import Total, by_budget, differences, held_back, listed, share, top, totals
from weir.pipeline.tables import CLIENT, REPLAY, TRACE, USAGE
from weir.quotas.replay_hours import HOUR_MS
from weir.quotas.table.options import Pacing

Source: TypeAlias = Literal["usage", "trace"]
TOP: Final = 10
_USES_PER_BUCKET: Final = 2_000_000
"""A record is a use of each candidate, and of the recording."""
_RECORDS_PER_DAY: Final = 250_000
"""Number of records of a day in a bucket: a task holds them all at once."""
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay."""

    source: Source = "usage"
    cluster: str = "default"
    """Name of the Kafka cluster whose records are replayed."""
    days: tuple[date, date] | None = None
    """First and last day (UTC) to replay; None for all days."""
    settings: BudgetSettings = field(default_factory=BudgetSettings)
    unnamed: str = ""
    """Client-id to assume for clients without client-id."""
    pacing: Pacing = Pacing.KAFKA
    """Kind of limiter (Kafka's or smooth) of byte rates whose entry in the quota file sets no pacing."""
    compare_sources: bool = False
    """True to replay traces and usage records of the traced clients, and to compare the results."""
    top: int = TOP


def replay(
    spark: SparkSession, lake: Lake, candidates: Sequence[Path], options: ReplayOptions = ReplayOptions()
) -> Outcome:
    """Replay the records under each candidate quota file, write the table `replay`, and return the
    comparison.

    Raises PipelineError if there are no candidates, or if a file cannot be read or parsed.
    """
    if not candidates:
        raise PipelineError("no candidate: name a quota file")
    files = read_candidates(candidates)
    rows = _source(spark, lake, options.source, options)
    extent = _extent(rows)
    of_cluster = f"cluster = {sql_text(options.cluster)}"
    replace(_replayed(rows, extent, files, options), lake.replay, of_cluster)
    names = [RECORDED, *(file.name for file in files)]
    budgets = by_budget(read(spark, lake.replay, REPLAY).where(of_cluster))
    found = totals(budgets, names)
    notes = [line for file in files for line in not_replayed(file)] + held_back(found, extent.span_s)
    if options.source == "trace" and extent.records:
        notes += _coverage(spark, lake, extent.records, options)
    if options.compare_sources and extent.records:
        notes += _compared(spark, lake, files, options, found)
    what = "records" if options.source == "usage" else "requests"
    if not extent.records:
        notes.append(
            f"nothing to replay: there are no {what} of these days in cluster {options.cluster}; was `weir "
            "pipeline ingest` run?"
        )
    return Outcome(
        "replay",
        read={what: extent.records},
        wrote={"hours": sum(total.hours for total in found)},
        where={what: lake.path(options.source), "hours": lake.replay},
        notes=tuple(notes),
        listings=(listed(found), top(budgets, names, options.top)),
    )


class _Extent(NamedTuple):
    """The extent of the records: their number, the time from the first to the last, and their clients."""

    records: int
    span_s: float
    end_ms: int
    clients: pl.DataFrame
    """Columns of `candidates.drawn`."""


def _extent(rows: DataFrame) -> _Extent:
    names = (filled(name, "").alias(name) for name in CLIENT)
    end = fn.col("time_ms") + (fn.col("interval_ms") if "interval_ms" in rows.columns else fn.lit(0))
    longest_ms = fn.greatest(*by_quota("throttle_ms"))
    each = rows.groupBy(*names).agg(
        fn.count("*").alias("count"),
        fn.min("time_ms").alias("first"),
        fn.max("time_ms").alias("last"),
        fn.max(end).alias("end"),
        (fn.max(longest_ms) > 0).alias("held_back"),
    )
    found = collected(each)
    count, span_ms, end_ms = found.select(
        pl.col("count").sum(), pl.col("last").max() - pl.col("first").min(), pl.col("end").max()
    ).row(0)
    return _Extent(count, (span_ms or 0) / 1000 + 1, end_ms or 0, found.select(*CLIENT, "held_back"))


def _source(spark: SparkSession, lake: Lake, source: Source, options: ReplayOptions) -> DataFrame:
    """Return the records (traces or usage) to replay; Spark opens no files of other clusters and days."""
    rows = read(spark, lake.path(source), USAGE if source == "usage" else TRACE)
    rows = rows.where(fn.col("cluster") == options.cluster)
    return rows if options.days is None else rows.where(fn.col("day").between(*map(fn.lit, options.days)))


def _replayed(
    rows: DataFrame, extent: _Extent, files: Sequence[Candidate], options: ReplayOptions
) -> DataFrame:
    """Return the hours (`tables.REPLAY`) of all budgets, under each candidate quota file and as recorded."""
    if not extent.records:
        return empty(rows.sparkSession, REPLAY)
    of_all = drawn(extent.clients, files, options.unnamed, options.pacing)
    settings = dc_replace(options.settings, end_ms=extent.end_ms)
    period_ms = DAY_MS if "interval_ms" in rows.columns else HOUR_MS
    per_day = int(extent.records / max(extent.span_s * 1000 / DAY_MS, 1))
    buckets = max(8 + extent.records * (1 + len(files)) // _USES_PER_BUCKET, per_day // _RECORDS_PER_DAY)
    return hours(rows, of_all, settings, buckets, period_ms)


def _coverage(spark: SparkSession, lake: Lake, traced: int, options: ReplayOptions) -> list[str]:
    """Return a line with the share of requests that have a trace; no line if the number is unknown."""
    used = _source(spark, lake, "usage", options).agg(fn.sum("requests")).first()
    if used is None or not used[0]:
        return []
    return [f"traces have {share(traced, used[0])} of the requests in the usage records of these days"]


def _compared(
    spark: SparkSession,
    lake: Lake,
    files: Sequence[Candidate],
    options: ReplayOptions,
    found: Sequence[Total],
) -> list[str]:
    """Replay traces and usage records of the traced clients, and return lines that compare the throttle times
    of both replays. `found` has the totals of the replay that was already made.
    """
    names = [RECORDED, *(file.name for file in files)]
    traces = _source(spark, lake, "trace", options)
    clients = traces.select(*CLIENT_COLUMNS).distinct()
    usage = _source(spark, lake, "usage", options).join(clients, [*CLIENT_COLUMNS], "left_semi")

    def of(rows: DataFrame) -> list[Total]:
        return totals(by_budget(_replayed(rows, _extent(rows), files, options)), names)

    lines = differences(found if options.source == "trace" else of(traces), of(usage))
    return lines or ["no client with both traces and usage records is throttled: nothing to compare"]
