"""Usage records in the table that ingest writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from weir.pipeline import tables
from weir.pipeline.lake import Lake, append_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS: Final = 86_400_000
FIRST_DAY: Final = date(2026, 3, 1)
FIRST_MS: Final = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
Record = Mapping[str, object]


def record(time_ms: int, **fields: object) -> dict[str, object]:
    """Return a usage record `time_ms` after FIRST_MS; fields that are not given are null, like fields
    missing in JSON.
    """
    day = FIRST_DAY + timedelta(days=time_ms // DAY_MS)
    named = {"broker": 1, "user": "u", "client_id": "c", "api": "produce", "cluster": "default", **fields}
    always = {"version": 1, "interval_ms": 1000, "instance": "w", "day": day}
    left_out = {name: None for name in tables.USAGE.names if name not in {*named, *always}}
    return {**left_out, **always, **named, "time_ms": FIRST_MS + time_ms}


def ingest(spark: SparkSession, lake: Lake, records: Sequence[Record]) -> None:
    rows = spark.createDataFrame([dict(each) for each in records], tables.USAGE)
    append_once(rows.coalesce(1), lake.usage, str(uuid4()), 0)
