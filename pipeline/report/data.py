"""Read the tables for the report.

Spark sums up the roll-ups in few queries. This process receives a bounded number of rows of usage: `CLIENTS`
entities and `BROKERS` brokers by at most `DAYS_MAX` columns. It also receives one row per proposal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as fn

from weir.pipeline import tables
from weir.pipeline.lake import read
from weir.pipeline.replay.candidates import RECORDED
from weir.pipeline.replay.summary import bounds
from weir.pipeline.report.model import (
    DAY_MS,
    DAYS_MAX,
    HOUR_MS,
    HOURS_MAX,
    WEEK_MS,
    Bounds,
    Broker,
    Candidate,
    Client,
    Columns,
    Counts,
    Findings,
    Ingested,
    Proposal,
    Series,
    Use,
)
from weir.pipeline.report.names import Entity
from weir.pipeline.rollup import reading
from weir.pipeline.rollup.columns import LEVELS, QUOTAS, RATES
from weir.quotas.replay_demand import RECORDED as DEMAND_RECORDED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from weir.pipeline.lake import Lake

    Row = dict[str, Any]

CLIENTS: Final = 400
"""Maximum number of entities in the report's table."""
BROKERS: Final = 30
"""Maximum number of brokers that the report shows."""
CANDIDATES: Final = 6
"""Maximum number of replayed quota files that the report shows; the recorded throttle times count as one."""
REASONS: Final = 10
KINDS: Final = ("usage", "trace")
_NAMES: Final = ("user", "client_id")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a report."""

    cluster: str = "default"
    days: tuple[date, date] | None = None
    """First and last day (UTC); None for all days."""
    level: str = LEVELS[0]
    top: int = 30
    """Number of clients with a page of their own."""
    capacity: Mapping[str, float] = field(default_factory=dict)
    """Capacity of each broker by quota, in the quota's unit."""


def find(spark: SparkSession, lake: Lake, wanted: Wanted) -> Findings:
    """Read all tables of the pipeline, and return the values that the report shows."""
    candidates = _candidates(_of(read(spark, lake.replay, tables.REPLAY), wanted), wanted)
    return Findings(
        wanted.level,
        wanted.top,
        wanted.cluster,
        wanted.capacity,
        use=_use(spark, lake, wanted),
        proposals=_proposals(_of(read(spark, lake.recommendation, tables.RECOMMENDATION), wanted)),
        candidates=candidates[:CANDIDATES],
        candidates_left=max(len(candidates) - CANDIDATES, 0),
        ingested=tuple(found for kind in KINDS if (found := _ingested(spark, lake, wanted, kind))),
    )


def clusters(spark: SparkSession, lake: Lake) -> list[str]:
    """Return the names of the clusters in the roll-ups."""
    return sorted(
        row["cluster"] for row in reading.rows(spark, lake, "day").select("cluster").distinct().collect()
    )


def _of(rows: DataFrame, wanted: Wanted) -> DataFrame:
    """Return the rows of the wanted cluster."""
    return rows.where(fn.col("cluster") == wanted.cluster)


def _use(spark: SparkSession, lake: Lake, wanted: Wanted) -> Use | None:
    ends: tuple[int, int] | None = None
    for period, step_ms, most in (("hour", HOUR_MS, HOURS_MAX), ("day", DAY_MS, DAYS_MAX)):
        rows = reading.rows(spark, lake, period, cluster=wanted.cluster, days=wanted.days)
        starts = [row["start_ms"] for row in rows.select("start_ms").distinct().collect()]
        if not starts:
            return None
        if step_ms == HOUR_MS:
            ends = _ends(_of(read(spark, lake.usage, tables.USAGE), wanted), min(starts), max(starts))
        columns = columns_of(starts, step_ms, ends)
        if columns.count <= most:
            break
    else:
        columns = columns.latest(DAYS_MAX)
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


def columns_of(starts: Iterable[int], step_ms: int, ends: tuple[int, int] | None) -> Columns:
    """Return the columns from the first to the last of the periods with records, which begin at `starts`
    (ms).

    A period with records counts as recorded, but only the part of it between `ends`, the beginning of the
    first record and the end of the last one. A period without any record does not count.
    """
    used = set(starts)
    periods = range(min(used), max(used) + 1, step_ms)
    first, last = ends or (periods[0], periods[-1] + step_ms)
    return Columns(
        periods[0],
        step_ms,
        tuple(
            max(min(start + step_ms, last) - max(start, first), 0) / 1000 if start in used else 0.0
            for start in periods
        ),
    )


def _use_of(rows: DataFrame, columns: Columns) -> Use:
    totals = _totals(rows, columns).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        sums: Row = totals.agg(*_sums()).collect()[0].asDict()
        leaders = _leaders(totals, sums)
        brokers, bytes_ = _brokers(rows, columns)
        return Use(
            columns,
            bytes_,
            brokers[:BROKERS],
            max(len(brokers) - BROKERS, 0),
            _clients(rows, leaders, columns),
            sums["entities"],
            tuple(Counts(*(sums[f"{name}_{ago}"] or 0 for name in _WEEK)) for ago in (0, 1)),  # type: ignore[arg-type]  # two
        )
    finally:
        totals.unpersist()


_SUMMED: Final = ("bytes_in", "bytes_out", "requests", "request_time_us", "mutations")
_SHARES: Final = ("bytes", "request_time_us", "mutations", "throttle_ms")
_WEEK: Final = ("entities", "throttled", "throttle_s")


def _bytes() -> Column:
    return fn.coalesce("bytes_in", fn.lit(0)) + fn.coalesce("bytes_out", fn.lit(0))


def _throttle(quota: str) -> Column:
    return fn.coalesce(fn.col(f"throttle_ms.{quota}"), fn.lit(0))


def _totals(rows: DataFrame, columns: Columns) -> DataFrame:
    """Return one row per entity, with its sums, its highest windows and its use of brokers."""
    all_ms = reduce(lambda left, right: left + right, map(_throttle, QUOTAS))
    weeks = {
        ago: fn.col("start_ms").between(
            *(fn.lit(columns.to_ms - (ago + 1) * WEEK_MS), fn.lit(columns.to_ms - ago * WEEK_MS - 1))
        )
        for ago in (0, 1)
    }
    at_broker = rows.groupBy(*_NAMES, "broker").agg(
        *(fn.coalesce(fn.sum(name), fn.lit(0)).alias(name) for name in _SUMMED),
        fn.sum(all_ms).alias("throttle_ms"),
        *(fn.sum(_throttle(quota)).alias(f"throttle_{quota}") for quota in QUOTAS),
        *(fn.max(f"{quota}.max").alias(quota) for quota in RATES),
        *(fn.count_if(week).alias(f"rows_{ago}") for ago, week in weeks.items()),
        *(fn.sum(fn.when(week, all_ms).otherwise(0)).alias(f"throttle_{ago}") for ago, week in weeks.items()),
    )
    used = fn.col("requests") > 0
    order = fn.struct(_bytes().alias("bytes"), "requests", (-fn.col("broker")).alias("nearness"))
    return at_broker.groupBy(*_NAMES).agg(
        fn.sum(_bytes()).alias("bytes"),
        *(fn.sum(name).alias(name) for name in (*_SUMMED, "throttle_ms")),
        *(fn.sum(f"throttle_{part}").alias(f"throttle_{part}") for part in (*QUOTAS, *weeks)),
        *(fn.sum(f"rows_{ago}").alias(f"rows_{ago}") for ago in weeks),
        *(fn.max(quota).alias(quota) for quota in RATES),
        fn.count_if(used).alias("brokers"),
        fn.max(fn.when(used, order)).alias("busiest"),
        fn.avg(fn.when(used, _bytes())).alias("mean"),
    )


def _sums() -> list[Column]:
    """Return the columns with sums over all entities."""
    return [
        fn.count(fn.lit(1)).alias("entities"),
        *(fn.sum(name).alias(name) for name in _SHARES),
        *(fn.count_if(fn.col(f"rows_{ago}") > 0).alias(f"entities_{ago}") for ago in (0, 1)),
        *(fn.count_if(fn.col(f"throttle_{ago}") > 0).alias(f"throttled_{ago}") for ago in (0, 1)),
        *((fn.sum(f"throttle_{ago}") / 1000).alias(f"throttle_s_{ago}") for ago in (0, 1)),
    ]


def _leaders(totals: DataFrame, sums: Row) -> list[Row]:
    """Return the rows of the most important entities, those with the largest share of any measure first."""
    shares = [fn.col(name) / fn.lit(float(sums[name])) for name in _SHARES if sums[name]]
    share = fn.greatest(*shares, fn.lit(0.0), fn.lit(0.0))
    rows = totals.orderBy(fn.desc(share), *_NAMES).limit(CLIENTS).collect()
    return [row.asDict(recursive=True) for row in rows]


def _brokers(rows: DataFrame, columns: Columns) -> tuple[tuple[Broker, ...], Series]:
    """Return the brokers, those with the most bytes first, and the bytes of all of them in each column."""
    cells = _rows(
        rows.groupBy("broker", "start_ms").agg(
            fn.sum(_bytes()).alias("bytes"),
            *(fn.sum(rate.amount).alias(rate.amount) for rate in RATES.values()),
        )
    )
    by_broker: dict[int, list[Row]] = {}
    for cell in cells:
        by_broker.setdefault(cell["broker"], []).append(cell)
    order = sorted(by_broker, key=lambda broker: (-sum(cell["bytes"] for cell in by_broker[broker]), broker))
    brokers = (Broker(each, _loads(by_broker[each], RATES, columns)) for each in order if each >= 0)
    return tuple(brokers), _series(cells, "bytes", columns)


def _loads(cells: list[Row], quotas: Iterable[str], columns: Columns) -> dict[str, Series]:
    """Return the rate of each quota in each column."""
    rates = {quota: RATES[quota] for quota in quotas}
    return {
        quota: columns.rates(_series(cells, rate.amount, columns, rate.unit)) for quota, rate in rates.items()
    }


def _clients(rows: DataFrame, leaders: list[Row], columns: Columns) -> tuple[Client, ...]:
    """Return the leaders with their use in each column."""
    names = {name: pa.array([row[name] for row in leaders], pa.string()) for name in _NAMES}
    numbers = rows.sparkSession.createDataFrame(pa.table({**names, "number": range(len(leaders))}))
    same = reduce(lambda left, right: left & right, (rows[name].eqNullSafe(numbers[name]) for name in _NAMES))
    found = (
        rows.join(fn.broadcast(numbers), same)
        .groupBy("number", "start_ms")
        .agg(
            fn.sum(_bytes()).alias("bytes"),
            *(fn.max(rate.amount).alias(rate.amount) for rate in RATES.values()),
            *(fn.max(f"{quota}.max").alias(quota) for quota in RATES),
        )
    )
    cells: list[list[Row]] = [[] for _ in leaders]
    for cell in _rows(found):
        cells[cell["number"]].append(cell)
    return tuple(_client(row, of, columns) for row, of in zip(leaders, cells, strict=True))


def _client(row: Row, cells: list[Row], columns: Columns) -> Client:
    throttle_s = {quota: row[f"throttle_{quota}"] / 1000 for quota in QUOTAS}
    peaks = {quota: row[quota] for quota in RATES if row[quota]}
    busiest = row["busiest"]
    return Client(
        Entity(row["user"], row["client_id"]),
        row["bytes_in"],
        row["bytes_out"],
        row["requests"],
        {quota: seconds for quota, seconds in throttle_s.items() if seconds},
        peaks,
        row["brokers"],
        None if busiest is None else -busiest["nearness"],
        busiest["bytes"] / row["mean"] if row["mean"] else 1.0,
        _series(cells, "bytes", columns),
        _loads(cells, peaks, columns),
        {quota: _series(cells, quota, columns) for quota in peaks},
    )


def _rows(found: DataFrame) -> list[Row]:
    """Return the rows, by way of Arrow, which is the fastest for many rows."""
    rows: list[Row] = found.toArrow().to_pylist()
    return rows


def _series(cells: Iterable[Row], name: str, columns: Columns, unit: float = 1.0) -> Series:
    """Return the sum of a column of cells, times `unit`, by the cells' periods; 0 without a cell."""
    values = [0.0] * columns.count
    for cell in cells:
        values[(cell["start_ms"] - columns.from_ms) // columns.step_ms] += (cell[name] or 0) * unit
    return tuple(values)


def _proposals(rows: DataFrame) -> tuple[Proposal, ...]:
    wanted = rows.where(fn.col("quota").isin(*RATES))
    return tuple(map(proposal, _rows(wanted.orderBy("quota", "user", "client_id"))))


def proposal(row: Mapping[str, Any]) -> Proposal:
    """Return the proposal in a row of `tables.RECOMMENDATION`. Columns that the report does not know do not
    matter, and missing ones are empty.
    """
    return Proposal(
        _entity(row),
        row["quota"],
        row.get("used"),
        row.get("current"),
        row.get("proposed"),
        row.get("lower"),
        row.get("upper"),
        in_default=bool(row.get("in_default")),
        flags=tuple(row.get("flags") or ()),
        reason=row.get("reason") or "",
    )


def _entity(row: Mapping[str, Any]) -> Entity:
    return Entity(row.get("user"), row.get("client_id"), row.get("client_id_prefix"))


def _candidates(rows: DataFrame, wanted: Wanted) -> tuple[Candidate, ...]:
    """Return the replayed quota files in the wanted days, with the recorded throttle times first."""
    if wanted.days is not None:
        rows = rows.where(fn.to_date(fn.timestamp_millis("start_ms")).between(*wanted.days))
    summed = rows.groupBy("candidate", "quota").agg(
        *bounds("throttled_s"),
        *(fn.coalesce(fn.sum(name), fn.lit(0)).alias(name) for name in ("violations", "given_up")),
        (fn.count_if(fn.col("demand") != DEMAND_RECORDED) == 0).alias("is_known"),
    )
    by_name: dict[str, list[Row]] = {}
    for row in _rows(summed.orderBy("quota")):
        by_name.setdefault(row["candidate"], []).append(row)
    return tuple(
        Candidate(
            name,
            {row["quota"]: Bounds(row["throttled_s_lower"], row["throttled_s_upper"]) for row in of_name},
            *(
                sum(row[name] for row in of_name) if all(row["is_known"] for row in of_name) else None
                for name in ("violations", "given_up")
            ),
        )
        for name, of_name in sorted(by_name.items(), key=lambda each: (each[0] != RECORDED, each[0]))
    )


def _ingested(spark: SparkSession, lake: Lake, wanted: Wanted, kind: str) -> Ingested | None:
    columns = tables.USAGE if kind == "usage" else tables.TRACE
    good = _of(read(spark, lake.path(kind), columns), wanted).count()
    lines = _of(read(spark, lake.rejected, tables.REJECTED), wanted).where(fn.col("kind") == kind)
    counted = _rows(lines.groupBy("reason").count().orderBy(fn.desc("count"), "reason"))
    reasons = tuple((row["reason"] or "", row["count"]) for row in counted)
    rejected = sum(count for _, count in reasons)
    return Ingested(kind, good, rejected, reasons[:REASONS]) if good or rejected else None
