"""Replay: compute which clients candidate quota files would have throttled, when, and for how long.

The job reads traces or usage records, and runs the classes that enforce quotas (`quotas.replay`) for each
candidate. The table `replay` gets one row per budget and hour, with the computed throttle times, and the same
rows with the recorded throttle times. For clients that quotas held back in the recording, the throttle times
are a range from models of demand (`quotas.replay_demand`). docs/how-to/pipeline/replay.md describes the
models of clients and their accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dc_replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from weir.pipeline.lake import empty, read, replace
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.replay import charges as replay_charges
from weir.pipeline.replay import recorded as replay_recorded
from weir.pipeline.replay.candidates import RECORDED, Candidate, draws, not_replayed, read_candidates
from weir.pipeline.replay.run import BudgetSettings, hours
from weir.pipeline.replay.summary import Total, differences, held_back, listed, share, top, totals
from weir.pipeline.tables import REPLAY, TRACE, USAGE
from weir.quotas.replay_demand import HELD_BACK, UNKNOWN
from weir.quotas.replay_demand import RECORDED as DEMAND_RECORDED
from weir.quotas.table.options import Pacing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from weir.pipeline.lake import Lake

Source: TypeAlias = Literal["usage", "trace"]
TOP: Final = 10
_BUDGET: Final = ("cluster", "candidate", "quota", "user", "client_id", "broker", "start_ms", "limit")
_BOUNDS: Final = ("throttle_ms_lower", "throttle_ms_upper", "throttled_s_lower", "throttled_s_upper")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a replay."""

    source: Source = "usage"
    first: date | None = None
    """First day (UTC) to replay; None for no limit."""
    last: date | None = None
    """Last day (UTC) to replay; None for no limit."""
    settings: BudgetSettings = field(default_factory=BudgetSettings)
    unnamed: str = ""
    """Client-id to assume for clients without client-id."""
    pacing: Pacing = Pacing.KAFKA
    """Kind of limiter (Kafka's or smooth) of byte rates whose entry in the quota file sets no pacing."""
    charges_per_record: int = replay_charges.CHARGES_PER_RECORD
    compare_sources: bool = False
    """True to replay traces and usage records of the traced clients, and to report the difference between
    both results.
    """
    top: int = TOP


def replay(
    spark: SparkSession, lake: Lake, candidates: Sequence[Path], options: Options | None = None
) -> Outcome:
    """Replay the records under each candidate quota file, write the table `replay`, and return the
    comparison.

    Raises PipelineError if there are no candidates, or if a file cannot be read or parsed.
    """
    options = options or Options()
    if not candidates:
        raise PipelineError("no candidate: name a quota file")
    files = read_candidates(candidates)
    rows = _source(spark, lake, options.source, options)
    count, span_s, end_ms = _extent(rows)
    options = dc_replace(options, settings=dc_replace(options.settings, end_ms=end_ms))
    of_all = _replayed(rows, files, options) if count else empty(spark, REPLAY)
    replace(of_all, lake.replay)
    written = read(spark, lake.replay, REPLAY)
    names = [RECORDED, *(file.name for file in files)]
    found = totals(written, names)
    notes = [line for file in files for line in not_replayed(file)] + held_back(found, span_s)
    if options.source == "trace" and count:
        notes += _coverage(spark, lake, count, options)
    if options.compare_sources and count:
        notes += _compared(spark, lake, files, options, found)
    what = "records" if options.source == "usage" else "requests"
    if not count:
        notes.append(f"nothing to replay: there are no {what} of these days; was `weir pipeline ingest` run?")
    return Outcome(
        "replay",
        read={what: count},
        wrote={"hours": sum(total.hours for total in found)},
        where={what: lake.usage if options.source == "usage" else lake.trace, "hours": lake.replay},
        notes=tuple(notes),
        listings=(listed(found), top(written, names, options.top)),
    )


def _extent(rows: DataFrame) -> tuple[int, float, int]:
    """Return the number of records, the length (s) of the time from the first to the last, and the end of the
    last (ms).
    """
    end = F.col("time_ms") + (F.col("interval_ms") if "interval_ms" in rows.columns else F.lit(0))
    first, last = F.min("time_ms"), F.max("time_ms")
    found = rows.agg(
        F.count("*").alias("rows"),
        ((last - first) / 1000 + 1).alias("span_s"),
        F.max(end).alias("end_ms"),
    ).first()
    assert found is not None  # an aggregate without groups has one row
    return int(found["rows"]), float(found["span_s"] or 0.0), int(found["end_ms"] or 0)


def _source(spark: SparkSession, lake: Lake, source: Source, options: Options) -> DataFrame:
    """Return the records of the days to replay, from the table of traces or of usage; Spark opens no files of
    other days.
    """
    rows = read(spark, lake.usage, USAGE) if source == "usage" else read(spark, lake.trace, TRACE)
    if options.first is not None:
        rows = rows.where(F.col("day") >= F.lit(options.first))
    if options.last is not None:
        rows = rows.where(F.col("day") <= F.lit(options.last))
    return rows


def _replayed(rows: DataFrame, files: Sequence[Candidate], options: Options) -> DataFrame:
    """Return the hours (`tables.REPLAY`) of all budgets: as computed under each candidate quota file, and as
    recorded.
    """
    held_back = (replay_charges.longest_ms() > 0).alias("held_back")
    drawn = draws(rows.select("user", "client_id", held_back), files, options.unnamed, options.pacing)
    of_first = drawn.where(F.col("candidate") == files[0].name)
    if "interval_ms" in rows.columns:
        charges = replay_charges.of_usage(rows, options.charges_per_record)
        recorded = replay_recorded.of_usage(rows, of_first)
    else:
        charges = replay_charges.of_traces(rows)
        recorded = replay_recorded.of_charges(charges, of_first)
    of_instances = hours(charges, drawn, options.settings)
    counted = ("charged", "charges", "violations", "given_up")
    is_unknown = F.bool_or(F.col("demand") == UNKNOWN)
    summed = of_instances.groupBy(*_BUDGET).agg(
        *(F.sum(name).alias(name) for name in counted),
        *(F.when(~is_unknown, F.sum(name)).alias(name) for name in _BOUNDS),
        F.when(is_unknown, UNKNOWN)
        .when(F.bool_or(F.col("demand") == HELD_BACK), HELD_BACK)
        .otherwise(DEMAND_RECORDED)
        .alias("demand"),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    )
    return summed.select(*REPLAY.fieldNames()).unionByName(recorded)


def _coverage(spark: SparkSession, lake: Lake, traced: int, options: Options) -> list[str]:
    """Return one line that tells the share of requests that have a trace; no line if the number of requests
    is unknown.
    """
    used = _source(spark, lake, "usage", options).agg(F.sum("requests")).first()
    if used is None or not used[0]:
        return []
    return [f"traces have {share(traced, used[0])} of the requests in the usage records of these days"]


def _compared(
    spark: SparkSession, lake: Lake, files: Sequence[Candidate], options: Options, found: Sequence[Total]
) -> list[str]:
    """Replay traces and usage records of the traced clients, and return lines that compare the throttle times
    of both replays. `found` has the totals of the replay that was already made.
    """
    names = [RECORDED, *(file.name for file in files)]
    traces = _source(spark, lake, "trace", options)
    clients = traces.select(*replay_charges.CLIENT_COLUMNS).distinct()
    usage = _source(spark, lake, "usage", options).join(
        clients, [*replay_charges.CLIENT_COLUMNS], "left_semi"
    )
    is_trace = options.source == "trace"
    of_traces = found if is_trace else totals(_replayed(traces, files, options), names)
    lines = differences(of_traces, totals(_replayed(usage, files, options), names))
    return lines or ["no client with both traces and usage records is throttled: nothing to compare"]
