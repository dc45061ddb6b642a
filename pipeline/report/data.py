"""Read the tables for the report.

Spark sums up the roll-ups in few queries. This process receives a bounded number of rows of usage: `CLIENTS`
entities, and all brokers, by at most `DAYS_MAX` columns. It also receives one row per proposal.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from weir.pipeline import tables
from weir.pipeline.arrow import collected
from weir.pipeline.lake import Lake, filled, read
from weir.pipeline.replay.candidates import RECORDED
from weir.pipeline.replay.summary import bounds
from weir.pipeline.report import model
from weir.pipeline.report.names import ReportEntity
from weir.pipeline.rollup import reading
from weir.pipeline.rollup.columns import QUOTAS, RATES
from weir.quotas.replay_demand import RECORDED as DEMAND_RECORDED

CLIENTS: Final = 400
"""Maximum number of entities in the report's table."""
BROKERS: Final = 30
"""Maximum number of brokers that the report shows."""
HOURS_MAX: Final = 15 * 24
"""Maximum number of hourly columns; a longer time has columns of days."""
DAYS_MAX: Final = 400
"""Maximum number of daily columns; the report of a longer time shows the latest days."""
_SUMMED: Final = ("bytes_in", "bytes_out", "requests", "request_time_us", "mutations")
_SHARES: Final = ("bytes", "request_time_us", "mutations", "throttle_ms")
_WEEKS: Final = (0, 1)


def find(spark: SparkSession, lake: Lake, wanted: model.ReportOptions) -> model.Findings:
    """Read all tables of the pipeline, and return the values that the report shows."""
    kinds = {"usage": tables.USAGE, "trace": tables.TRACE}
    good = {kind: _of(read(spark, lake.path(kind), columns), wanted) for kind, columns in kinds.items()}
    rejected = _of(read(spark, lake.rejected, tables.REJECTED), wanted)
    ingested = [_ingested(kind, rows.count(), rejected) for kind, rows in good.items()]
    return model.Findings(
        wanted,
        _use(spark, lake, wanted, good["usage"]),
        _proposals(_of(read(spark, lake.recommendation, tables.RECOMMENDATION), wanted)),
        _candidates(_of(read(spark, lake.replay, tables.REPLAY), wanted), wanted),
        [each for each in ingested if each.good or each.rejected],
    )


def clusters(spark: SparkSession, lake: Lake) -> list[str]:
    """Return the names of the clusters in the roll-ups."""
    return sorted(
        row["cluster"] for row in reading.rows(spark, lake, "day").select("cluster").distinct().collect()
    )


def _of(rows: DataFrame, wanted: model.ReportOptions) -> DataFrame:
    return rows.where(fn.col("cluster") == wanted.cluster)


def _use(
    spark: SparkSession, lake: Lake, wanted: model.ReportOptions, records: DataFrame
) -> model.Use | None:
    rows = reading.rows(spark, lake, "hour", cluster=wanted.cluster, days=wanted.days)
    starts = [row["start_ms"] for row in rows.select("start_ms").distinct().collect()]
    if not starts:
        return None
    ends = _ends(records, min(starts), max(starts))
    columns = columns_of(starts, model.HOUR_MS, ends)
    if columns.count > HOURS_MAX:
        rows = reading.rows(spark, lake, "day", cluster=wanted.cluster, days=wanted.days)
        days = (start - start % model.DAY_MS for start in starts)
        columns = columns_of(days, model.DAY_MS, ends).latest(DAYS_MAX)
    level = fn.col("level") == wanted.level
    return _use_of(rows.where(level & (fn.col("start_ms") >= columns.from_ms)), columns)


def _ends(records: DataFrame, first_ms: int, last_ms: int) -> tuple[int, int] | None:
    """Return the times (ms) at which the first record begins and the last one ends, from the days of the
    first and last hour of use; None if ingest keeps no records of these days.
    """
    days = {datetime.fromtimestamp(ms / 1000, UTC).date() for ms in (first_ms, last_ms)}
    end = fn.col("time_ms") + fn.col("interval_ms")
    found = records.where(fn.col("day").isin(*days)).agg(fn.min("time_ms"), fn.max(end)).collect()[0]
    return None if found[0] is None else (found[0], found[1])


def columns_of(starts: Iterable[int], step_ms: int, ends: tuple[int, int] | None) -> model.Columns:
    """Return the columns from the first to the last of the periods with records, which begin at `starts`
    (ms).

    A period with records counts as recorded, but only the part of it between `ends`, the beginning of the
    first record and the end of the last one. A period without any record does not count.
    """
    used = set(starts)
    periods = range(min(used), max(used) + 1, step_ms)
    first, last = ends or (periods[0], periods[-1] + step_ms)
    recorded = (
        max(min(start + step_ms, last) - max(start, first), 0) / 1000 if start in used else 0.0
        for start in periods
    )
    return model.Columns(periods[0], step_ms, tuple(recorded))


def _use_of(rows: DataFrame, columns: model.Columns) -> model.Use:
    totals = _totals(rows, columns).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        (sums,) = totals.agg(
            fn.count(fn.lit(1)).alias("entities"),
            *(fn.sum(name).alias(name) for name in _SHARES),
            *(_week(ago).alias(f"week_{ago}") for ago in _WEEKS),
        ).collect()
        brokers, bytes_ = _brokers(rows, columns)
        return model.Use(
            columns,
            bytes_,
            dict(brokers[:BROKERS]),
            max(len(brokers) - BROKERS, 0),
            _clients(rows, totals, {name: sums[name] for name in _SHARES}, columns),
            sums["entities"],
            (model.EntityCounts(*sums["week_0"]), model.EntityCounts(*sums["week_1"])),
        )
    finally:
        totals.unpersist()


def _week(ago: int) -> Column:
    """Return the column with `Counts` over all entities."""
    throttle_ms = fn.col(f"throttle_{ago}")
    throttle_s = fn.coalesce(fn.sum(throttle_ms) / 1000, fn.lit(0.0))
    return fn.struct(fn.count_if(fn.col(f"rows_{ago}") > 0), fn.count_if(throttle_ms > 0), throttle_s)


def _totals(rows: DataFrame, columns: model.Columns) -> DataFrame:
    """Return one row per entity, with its sums, its highest windows and its use of brokers."""
    throttles = {f"throttle_{quota}": filled(f"throttle_ms.{quota}") for quota in QUOTAS}
    throttle_ms = sum(throttles.values(), fn.lit(0))
    summed = {name: filled(name) for name in _SUMMED}
    summed |= {"bytes": _bytes(), "throttle_ms": throttle_ms, **throttles}
    for ago in _WEEKS:
        end_ms = columns.to_ms - ago * model.WEEK_MS
        in_week = fn.col("start_ms").between(end_ms - model.WEEK_MS, end_ms - 1)
        summed[f"rows_{ago}"] = in_week.cast("long")
        summed[f"throttle_{ago}"] = fn.when(in_week, throttle_ms).otherwise(0)
    at_broker = rows.groupBy(*tables.CLIENT, "broker").agg(
        *(fn.sum(value).alias(name) for name, value in summed.items()),
        *(fn.max(f"{quota}.max").alias(quota) for quota in RATES),
    )
    used = fn.col("requests") > 0
    order = fn.struct("bytes", "requests", (-fn.col("broker")).alias("nearness"))
    busiest = fn.max(fn.when(used, order))
    mean = fn.avg(fn.when(used, fn.col("bytes")))
    return at_broker.groupBy(*tables.CLIENT).agg(
        *(fn.sum(name).alias(name) for name in summed),
        *(fn.max(quota).alias(quota) for quota in RATES),
        fn.count_if(used).alias("brokers"),
        (-busiest["nearness"]).alias("busiest_broker"),
        fn.coalesce(fn.try_divide(busiest["bytes"], mean), fn.lit(1.0)).alias("skew"),
    )


def _bytes() -> Column:
    return filled("bytes_in") + filled("bytes_out")


def _brokers(rows: DataFrame, columns: model.Columns) -> tuple[list[tuple[int, model.Loads]], model.Series]:
    """Return the brokers, those with the most bytes first, and the bytes of all of them in each column."""
    amounts = {rate.amount: fn.sum(rate.amount) for rate in RATES.values()} | {"bytes": fn.sum(_bytes())}
    cells = collected(
        rows.groupBy("broker", "start_ms").agg(*(value.alias(name) for name, value in amounts.items()))
    )
    each = cells.partition_by("broker", as_dict=True)
    order = sorted(each, key=lambda broker: (-each[broker]["bytes"].sum(), broker))
    brokers = [(at[0], _loads(each[at], RATES, columns)) for at in order if at[0] >= 0]
    return brokers, _series(cells, "bytes", columns)


def _clients(
    rows: DataFrame, totals: DataFrame, sums: dict[str, int | None], columns: model.Columns
) -> tuple[model.EntityUsage, ...]:
    """Return the most important entities, those with the largest share of any measure in `sums` first, with
    their use in each column.
    """
    shares = [fn.col(name) / fn.lit(float(all_)) for name, all_ in sums.items() if all_]
    share = fn.greatest(*shares, fn.lit(0.0), fn.lit(0.0))
    leaders = totals.orderBy(fn.desc(share), *tables.CLIENT).limit(CLIENTS)
    theirs = leaders.select(*(fn.col(name).alias(f"its_{name}") for name in tables.CLIENT))
    same = [fn.col(name).eqNullSafe(fn.col(f"its_{name}")) for name in tables.CLIENT]
    cells = collected(
        rows.join(fn.broadcast(theirs), same, "left_semi")
        .groupBy(*tables.CLIENT, "start_ms")
        .agg(
            fn.sum(_bytes()).alias("bytes"),
            *(fn.max(rate.amount).alias(rate.amount) for rate in RATES.values()),
            *(fn.max(f"{quota}.max").alias(quota) for quota in RATES),
        )
    ).partition_by(tables.CLIENT, as_dict=True)
    found = collected(leaders).to_dicts()
    return tuple(_client(row, cells[row["user"], row["client_id"]], columns) for row in found)


def _client(row: dict[str, Any], cells: pl.DataFrame, columns: model.Columns) -> model.EntityUsage:
    throttle_s = {quota: row[f"throttle_{quota}"] / 1000 for quota in QUOTAS}
    peaks = {quota: row[quota] for quota in RATES if row[quota]}
    simple = ("bytes_in", "bytes_out", "requests", "brokers", "busiest_broker", "skew")
    return model.EntityUsage(
        ReportEntity(row["user"], row["client_id"]),
        **{name: row[name] for name in simple},
        throttle_s={quota: seconds for quota, seconds in throttle_s.items() if seconds},
        peaks=peaks,
        bytes_=_series(cells, "bytes", columns),
        means=_loads(cells, peaks, columns),
        highs={quota: _series(cells, quota, columns) for quota in peaks},
    )


def _loads(cells: pl.DataFrame, quotas: Iterable[str], columns: model.Columns) -> model.Loads:
    rates = {quota: RATES[quota] for quota in quotas}
    return {
        quota: columns.rates(_series(cells, rate.amount, columns, rate.unit)) for quota, rate in rates.items()
    }


def _series(cells: pl.DataFrame, name: str, columns: model.Columns, unit: float = 1.0) -> model.Series:
    """Return the sum of a column of cells, times `unit`, by the cells' periods; 0 without a cell."""
    values = [0.0] * columns.count
    for start_ms, value in cells.select("start_ms", name).iter_rows():
        values[(start_ms - columns.from_ms) // columns.step_ms] += (value or 0) * unit
    return tuple(values)


def _proposals(rows: DataFrame) -> list[model.Proposal]:
    wanted = rows.where(fn.col("quota").isin(*RATES)).orderBy("quota", "user", "client_id")
    simple = ("quota", "used", "current", "proposed", "lower", "upper", "in_default", "reason")
    return [
        model.Proposal(
            ReportEntity(row["user"], row["client_id"], row["client_id_prefix"]),
            **{name: row[name] for name in simple},
            flags=tuple(row["flags"] or ()),
        )
        for row in collected(wanted).to_dicts()
    ]


def _candidates(rows: DataFrame, wanted: model.ReportOptions) -> list[model.CandidateResult]:
    """Return the replayed quota files in the wanted days, with the recorded throttle times first."""
    if wanted.days is not None:
        rows = rows.where(fn.to_date(fn.timestamp_millis("start_ms")).between(*wanted.days))
    counts = ("violations", "given_up")
    by_quota = rows.groupBy("candidate", "quota").agg(
        fn.struct(*bounds("throttled_s")).alias("throttled_s"),
        fn.count_if(fn.col("demand") != DEMAND_RECORDED).alias("unknown"),
        *(fn.coalesce(fn.sum(name), fn.lit(0)).alias(name) for name in counts),
        fn.min("start_ms").alias("from_ms"),
        (fn.max("start_ms") + model.HOUR_MS).alias("to_ms"),
    )
    throttled_s = fn.sort_array(fn.collect_list(fn.struct("quota", "throttled_s")))
    found = by_quota.groupBy("candidate").agg(
        throttled_s.alias("throttled_s"),
        *(fn.when(fn.sum("unknown") == 0, fn.sum(name)).alias(name) for name in counts),
        fn.min("from_ms").alias("from_ms"),
        fn.max("to_ms").alias("to_ms"),
    )
    return [
        model.CandidateResult(
            row["candidate"],
            {each["quota"]: model.Bounds(*each["throttled_s"].values()) for each in row["throttled_s"]},
            *(row[name] for name in (*counts, "from_ms", "to_ms")),
        )
        for row in collected(found.orderBy(fn.col("candidate") != RECORDED, "candidate")).to_dicts()
    ]


def _ingested(kind: str, good: int, rejected: DataFrame) -> model.Ingested:
    by_reason = rejected.where(fn.col("kind") == kind).groupBy("reason").count()
    ordered = collected(by_reason.orderBy(fn.desc("count"), "reason")).iter_rows()
    reasons = [(reason or "", count) for reason, count in ordered]
    return model.Ingested(kind, good, sum(count for _, count in reasons), reasons)
