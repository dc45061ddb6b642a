"""Files of usage records in Weir's format, for ingest to read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weir.pipeline.lake import read
from weir.pipeline.tables import USAGE
from weir.usage.records import TraceRecord, UsageRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON_MS = 1_700_049_600_000  # 2023-11-15 12:00 UTC


def usage(time_ms: int, name: str = "c", instance: str = "weir-1") -> bytes:
    return msgspec.json.encode(
        UsageRecord(
            version=1,
            time_ms=time_ms,
            interval_ms=1000,
            instance=instance,
            broker=1,
            user="u",
            client_id=name,
            api="fetch",
            requests=1,
        )
    )


def traced(time_ms: int) -> TraceRecord:
    return TraceRecord(
        version=1,
        time_ms=time_ms,
        instance="weir-1",
        broker=1,
        user="u",
        client_id="c",
        connection=1,
        api="fetch",
        api_key=1,
        api_version=17,
    )


def put(directory: Path, name: str, *lines: bytes) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(b"".join(line + b"\n" for line in lines))


def clients(spark: SparkSession, path: str) -> Counter[str]:
    return Counter(row.client_id for row in read(spark, path, USAGE).select("client_id").collect())
