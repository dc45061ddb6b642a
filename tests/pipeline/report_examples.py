"""Hand-made tables, in the form that the other jobs write, for the report's tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from weir.pipeline import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from weir.pipeline.lake import Lake

HOUR_MS: Final = 3_600_000
START_MS: Final = 1_795_737_600_000
"""2026-11-27 00:00 UTC (ms)."""
DAY: Final = datetime.fromtimestamp(START_MS / 1000, UTC).date()

Values = dict[str, object]


def row(columns: StructType, **values: object) -> Values:
    """Return a row with these values; all others are null, also in partial structs."""
    unknown = set(values) - set(columns.names)
    assert not unknown, f"no such columns: {unknown}"
    return {
        field.name: row(field.dataType, **value)
        if isinstance(field.dataType, StructType) and isinstance(value := values.get(field.name), dict)
        else values.get(field.name)
        for field in columns.fields
    }


def frame(spark: SparkSession, columns: StructType, rows: list[Values]) -> DataFrame:
    """Return a DataFrame, made by way of Arrow, which needs no Python process."""
    table = pa.Table.from_pylist([row(columns, **values) for values in rows], to_arrow_schema(columns))
    return spark.createDataFrame(table, columns)


def rolled(user: str | None, client_id: str | None, hour: int = 0, **values: object) -> Values:
    """Return an hour of the roll-up."""
    start_ms = START_MS + hour * HOUR_MS
    numbers = dict.fromkeys(
        ("requests", "bytes_in", "bytes_out", "produced_bytes", "fetched_bytes", "mutations", "errors"), 0
    )
    return {
        "level": "user-client-id",
        "user": user,
        "client_id": client_id,
        "start_ms": start_ms,
        "seconds": 3600,
        "request_time_us": 0.0,
        "brokers": 1,
        "busiest_broker": 1,
        "skew": 1.0,
        "throttle_ms": dict.fromkeys(tables.BY_QUOTA.names, 0),
        "day": datetime.fromtimestamp(start_ms / 1000, UTC).date(),
        **numbers,
        **values,
    }


def write_rollup(spark: SparkSession, lake: Lake, rows: list[Values], period: str = "hour") -> None:
    """Write hours and days to the lake, in the form that rollup writes."""
    tables.replace(frame(spark, tables.ROLLUP, rows), lake.rollup(period), "day")
