"""The ledger: counts of each batch, and the newest time of each stream, which decides what is late.

A record is late if its time is more than the allowed delay before the newest record that an *earlier batch*
has taken of the same stream. A stream has records in order of time: it is one instance of Weir, and in a
topic one partition. Therefore

- a repeated batch finds the same records late, because the rows of earlier batches do not change;

- a backlog that is read faster in one partition than in another makes no record late;

- an instance whose clock is ahead makes no other's records late. Its own newest time is at most the time when
Spark began the batch.

Each row has everything that the next batch needs, so that a batch reads only one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from pipeline import tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.lake import Lake

NEWEST: Final = StructType([StructField("stream", StringType()), StructField("newest_ms", LongType())])
LEDGER: Final = StructType(
    [
        *(StructField(name, LongType()) for name in ("read", "good", "late", "malformed")),
        StructField("first_ms", LongType()),  # of good records; null without good records
        StructField("last_ms", LongType()),
        StructField("taken_ms", LongType()),  # when Spark began the batch
        StructField("late_after_ms", LongType()),
        StructField(
            "newest", ArrayType(NEWEST)
        ),  # newest time of each stream, in this batch and all earlier ones
        tables.BATCH,
    ]
)
STREAMS_MAX: Final = 10_000
"""Number of streams, those with the newest records, whose newest time is kept; other streams have no late
records.
"""


def newest_before(spark: SparkSession, lake: Lake, kind: str, batch: int) -> DataFrame:
    """Return the newest time of each stream (`NEWEST`) before a batch."""
    row = tables.read(spark, lake.path("ledger", kind, f"batch={batch - 1}"), StructType(LEDGER.fields[:-1]))
    return row.select(fn.inline("newest")).to(NEWEST)


def stream() -> Column:
    """Return the name of a line's stream: channel and instance."""
    return fn.concat_ws("/", "channel", "instance")


def newest_after(before: DataFrame, rows: DataFrame) -> DataFrame:
    """Return one row: `newest` with the good records of a batch included."""
    seen = rows.where("reason is null").select("stream", fn.least("time_ms", "taken_ms").alias("newest_ms"))
    each = before.unionByName(seen).groupBy("stream").agg(fn.max("newest_ms").alias("newest_ms"))
    kept = each.orderBy(fn.desc("newest_ms"), "stream").limit(STREAMS_MAX)
    return kept.agg(fn.collect_list(fn.struct("stream", "newest_ms")).alias("newest"))
