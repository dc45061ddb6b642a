"""Records and quota files for a replay to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from weir.pipeline.lake import Lake, replace
from weir.pipeline.tables import TRACE_RECORD, USAGE_RECORD
from weir.usage.records import VERSION, TraceRecord, UsageRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUNDAY_MS = 1_763_856_000_000
"""2025-11-23 00:00 UTC (ms)."""


def put(
    spark: SparkSession,
    lake: Lake,
    records: Sequence[TraceRecord] | Sequence[UsageRecord],
    cluster: str = "default",
) -> None:
    """Replace the records of a cluster in the tables, in the form that ingest writes."""
    is_trace = isinstance(records[0], TraceRecord)
    lines = spark.createDataFrame([(msgspec.json.encode(one).decode(),) for one in records], "line string")
    columns = TRACE_RECORD if is_trace else USAGE_RECORD
    rows = lines.select(F.from_json("line", columns).alias("record")).select("record.*")
    day = F.to_date(F.timestamp_millis("time_ms"))
    path = lake.trace if is_trace else lake.usage
    rows = rows.withColumns({"day": day, "cluster": F.lit(cluster)}).coalesce(1)
    replace(rows, path, f"cluster = '{cluster}'")


def file(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, "utf-8")
    return path


def used(time_ms: int, **counts: object) -> UsageRecord:
    about: dict[str, object] = {"version": VERSION, "interval_ms": 1000, "instance": "weir-1", "broker": 0}
    about |= {"user": "alice", "client_id": "app", "api": "produce", "requests": 1, "sessions": 1}
    return msgspec.convert({**about, "time_ms": time_ms, **counts}, UsageRecord)
