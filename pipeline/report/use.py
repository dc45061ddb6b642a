"""Query usage and throttle times by entity and time, from the roll-ups of one level (users, client-ids, or
pairs of both).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as sql

from weir.pipeline import tables
from weir.pipeline.report.model import (
    MEASURES,
    Heat,
    Measure,
    Overview,
    Span,
    Talker,
    Talkers,
    Throttled,
    ThrottledEntity,
    Uneven,
)
from weir.pipeline.report.names import Entity
from weir.pipeline.report.units import SECONDS, Quantity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

QUOTAS: Final = tuple(tables.BY_QUOTA.names)
UNEVEN: Final = 10
"""Maximum number of entities with uneven use of brokers to show."""
_ALL_WAITED: Final = "waited_s"
_NAMES: Final = ("user", "client_id")
_BY_TIME: Final = (
    *(measure.name for measure in MEASURES),
    _ALL_WAITED,
    *(f"{_ALL_WAITED}_{quota}" for quota in QUOTAS),
)
"""Columns of the result of `amounts` that heat maps show: each is summed up by entity and time."""
_SUMMED: Final = ("requests", "bytes_in", "bytes_out", "bytes", *_BY_TIME, "excess_bytes", "skew_bytes")
_RANKED: Final = (*(measure.name for measure in MEASURES), _ALL_WAITED)
"""Columns by which the report ranks entities: it shows the entities with the highest values in a table and in
a heat map.
"""
_OTHERS: Final = -1


def amounts(rolled: DataFrame) -> DataFrame:
    """Return the rows of a roll-up with the columns that the report sums up or ranks, in base units (bytes,
    s).
    """
    waited = [sql.coalesce(sql.col(f"throttle_ms.{quota}") / 1000, sql.lit(0.0)) for quota in QUOTAS]
    bytes_ = sql.col("bytes_in") + sql.col("bytes_out")
    excess = (sql.col("skew") - 1) * bytes_ / sql.col("brokers")
    return rolled.select(
        *_NAMES,
        "start_ms",
        *("requests", "bytes_in", "bytes_out", bytes_.alias("bytes")),
        *("produced_bytes", "fetched_bytes", "mutations"),
        (sql.col("request_time_us") / 1e6).alias("request_time_s"),
        *(sql.col(f"{measure.rate}.max").alias(_peak(measure)) for measure in MEASURES),
        *(column.alias(_waited(quota)) for column, quota in zip(waited, QUOTAS, strict=True)),
        reduce(lambda left, right: left + right, waited).alias(_ALL_WAITED),
        *("brokers", "busiest_broker"),
        sql.when(sql.col("brokers") > 1, excess).otherwise(0.0).alias("excess_bytes"),
        (sql.col("skew") * bytes_).alias("skew_bytes"),
    )


def entity_totals(rows: DataFrame) -> DataFrame:
    """Return one row per entity: the sums over all times of the amounts that the function `amounts` returns,
    and the maximum of each rate.
    """
    return rows.groupBy(*_NAMES).agg(
        *(sql.coalesce(sql.sum(name), sql.lit(0)).alias(name) for name in _SUMMED),
        *(sql.max(_peak(measure)).alias(_peak(measure)) for measure in MEASURES),
        sql.max("brokers").alias("brokers"),
        sql.max_by("busiest_broker", "bytes").alias("busiest_broker"),
    )


def _peak(measure: Measure) -> str:
    return f"{measure.name}_peak"


def _waited(quota: str) -> str:
    return f"{_ALL_WAITED}_{quota}"


def _count(name: str) -> str:
    """Return the name of the column that counts the entities whose value in the column `name` is above 0."""
    return f"{name}_count"


def _entity(row: Row) -> Entity:
    return Entity(row["user"], row["client_id"])


@dataclass(frozen=True)
class Use:
    """Queries of the roll-up for the report: sums by entity and time. A result that several queries need is
    computed once.
    """

    spark: SparkSession
    rows: DataFrame
    """Amounts that the report sums up, one row per entity and period: the result of `amounts`."""
    totals: DataFrame
    """Sums over all times, one row per entity: the result of `entity_totals`."""
    span: Span
    top: int

    def overview(self) -> Overview:
        """Return the main numbers of the report."""
        sums, busiest = self._sums, self._leaders["bytes"][0]
        return Overview(
            span=self.span,
            entities=sums["entities"],
            throttled_entities=sums[_count(_ALL_WAITED)],
            requests=sums["requests"],
            bytes_in=sums["bytes_in"],
            bytes_out=sums["bytes_out"],
            throttle_s=sums[_ALL_WAITED],
            busiest=_entity(busiest),
            busiest_bytes=busiest["bytes"],
        )

    def talkers(self) -> tuple[Talkers, ...]:
        """Return the entities with the highest usage, for each measure with any usage."""
        return tuple(self._talkers(measure) for measure in MEASURES if self._leaders[measure.name])

    def _talkers(self, measure: Measure) -> Talkers:
        name, leaders = measure.name, self._leaders[measure.name]
        rows = tuple(Talker(_entity(row), row[name], row[_peak(measure)]) for row in leaders)
        return Talkers(measure, rows, self._rest(name, leaders), self._sums[_count(name)] - len(leaders))

    def heats(self) -> tuple[Heat, ...]:
        """Return a heat map of the entities with the highest usage, for each measure with any usage."""
        return tuple(
            self._heat(measure.name, measure.title, measure.quantity, self._leaders[measure.name])
            for measure in MEASURES
            if self._leaders[measure.name]
        )

    def throttled(self) -> Throttled | None:
        """Return the entities with the longest throttle times; None if no client was throttled."""
        leaders = self._leaders[_ALL_WAITED]
        if not leaders:
            return None
        quotas = [quota for quota in QUOTAS if self._sums[_waited(quota)] > 0]
        rows = (ThrottledEntity(_entity(row), {q: row[_waited(q)] for q in quotas}) for row in leaders)
        shown = {_waited(quota): quota for quota in quotas}
        if len(shown) > 1:
            shown = {_ALL_WAITED: "throttle time of all quotas"} | shown
        return Throttled(
            rows=tuple(rows),
            rest={quota: self._rest(_waited(quota), leaders) for quota in quotas},
            rest_count=self._sums[_count(_ALL_WAITED)] - len(leaders),
            heats=tuple(self._heat(name, title, SECONDS, leaders) for name, title in shown.items()),
        )

    def uneven(self) -> tuple[Uneven, ...]:
        """Return the entities whose busiest broker carried the most bytes beyond the mean over the entity's
        brokers.
        """
        return tuple(
            Uneven(
                _entity(row),
                brokers=row["brokers"],
                busiest_broker=row["busiest_broker"],
                skew=row["skew_bytes"] / row["bytes"],
                excess_bytes=row["excess_bytes"],
            )
            for row in self._leaders["excess_bytes"]
        )

    @cached_property
    def _sums(self) -> Row:
        """One row with the sum of each measure (requests, bytes, times) over all entities. For each measure
        of time it also has the number of entities whose amount is above 0.
        """
        return self.totals.agg(
            sql.count(sql.lit(1)).alias("entities"),
            *(sql.sum(name).alias(name) for name in ("requests", "bytes_in", "bytes_out", *_BY_TIME)),
            *(sql.count_if(sql.col(name) > 0).alias(_count(name)) for name in _BY_TIME),
        ).collect()[0]

    @cached_property
    def _leaders(self) -> dict[str, list[Row]]:
        """Rows of the entities with the highest values, by name of the ranking column. One query computes all
        columns, because each query takes seconds.
        """
        wanted = {**dict.fromkeys(_RANKED, self.top), "bytes": 1, "excess_bytes": UNEVEN}
        each = (
            self.totals.orderBy(sql.desc(name), *_NAMES).limit(count).withColumn("by", sql.lit(name))
            for name, count in wanted.items()
        )
        leaders: dict[str, list[Row]] = {name: [] for name in wanted}
        for row in reduce(lambda left, right: left.union(right), each).collect():
            if row[row["by"]] > 0 or row["by"] == "bytes":
                leaders[row["by"]].append(row)
        for name, rows in leaders.items():  # a union may return rows in any order
            rows.sort(key=lambda row: (-row[name], *(row[part] or "" for part in _NAMES)))
        return leaders

    def _rest(self, name: str, shown: Sequence[Row]) -> float:
        """Return the sum of column `name` over the entities that are not shown. A negative rounding error
        becomes 0.
        """
        everybody: float = self._sums[name]
        return max(everybody - sum(row[name] for row in shown), 0) if self._sums[_count(name)] else 0

    def _heat(self, name: str, title: str, quantity: Quantity, leaders: Sequence[Row]) -> Heat:
        numbers = {self._numbers[_entity(row)]: _entity(row) for row in leaders}
        rows: dict[int, dict[int, float]] = {number: {} for number in numbers}
        rest: dict[int, float] = {}
        for cell in self._cells:
            row = rows.get(cell["number"], rest)
            if cell[name] > 0:
                row[cell["bucket"]] = row.get(cell["bucket"], 0) + cell[name]
        return Heat(
            title,
            quantity,
            self.span.columns,
            rows=tuple((entity, rows[number]) for number, entity in numbers.items() if rows[number]),
            rest=rest,
            rest_count=self._sums[_count(name)] - sum(bool(row) for row in rows.values()),
        )

    @cached_property
    def _numbers(self) -> dict[Entity, int]:
        """Index numbers of all entities that any chart shows, so that results need no names."""
        entities = dict.fromkeys(_entity(row) for name in _RANKED for row in self._leaders[name])
        return {entity: number for number, entity in enumerate(entities)}

    @cached_property
    def _cells(self) -> list[Row]:
        """Rows with the sums for one cell of the heat maps: period (`bucket`, its beginning in ms) and index
        number of the entity. Entities that no chart shows share one number, which bounds the number of rows.
        """
        numbers = self.spark.createDataFrame(_named(self._numbers))
        same = reduce(
            lambda left, right: left & right, (self.rows[name].eqNullSafe(numbers[name]) for name in _NAMES)
        )
        columns = self.span.columns
        since = self.rows["start_ms"] - columns.from_ms
        bucket = self.rows["start_ms"] - sql.pmod(since, sql.lit(columns.step_ms))
        placed = self.rows.join(sql.broadcast(numbers), same, "left")
        return (
            placed.groupBy(bucket.alias("bucket"), sql.coalesce("number", sql.lit(_OTHERS)).alias("number"))
            .agg(*(sql.coalesce(sql.sum(name), sql.lit(0)).alias(name) for name in _BY_TIME))
            .collect()
        )


def _named(numbers: Mapping[Entity, int]) -> pa.Table:
    """Return entities with their index numbers as an Arrow table: Spark reads it without a Python process."""
    columns = {
        "user": pa.array([entity.user for entity in numbers], pa.string()),
        "client_id": pa.array([entity.client_id for entity in numbers], pa.string()),
        "number": pa.array(numbers.values(), pa.int32()),
    }
    return pa.table(columns)
