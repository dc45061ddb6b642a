"""What each batch has read and written, and from when on a record is late.

A record is late if its time is more than a delay before the newest that an *earlier batch* has taken of the
same stream. A stream is what comes in order of time: one instance of Weir (in a topic: within one
partition). So

- a batch that is done again after a kill decides as before: the rows of earlier batches do not change;
- a backlog that is read faster in one partition than in another makes nothing late;
- an instance whose clock is ahead makes no other's records late, and its own only as far as to the time
  when Spark began the batch: what is newer counts as that new.

Each row carries all that the next batch needs, so one is read however many there are.
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
        StructField("first_ms", LongType()),  # of good records; null if there was none
        StructField("last_ms", LongType()),
        StructField("taken_ms", LongType()),  # when Spark began the batch
        StructField("late_after_ms", LongType()),
        StructField("newest", ArrayType(NEWEST)),  # of each stream, in this batch and all before
        tables.BATCH,
    ]
)
STREAMS_MAX: Final = 10_000
"""Of so many streams, those with the newest records, the newest time is known; of others nothing is late."""


def newest_before(spark: SparkSession, lake: Lake, kind: str, batch: int) -> DataFrame:
    """The newest time of each stream (`NEWEST`) before a batch."""
    row = tables.read(spark, lake.path("ledger", kind, f"batch={batch - 1}"), StructType(LEDGER.fields[:-1]))
    return row.select(fn.inline("newest")).to(NEWEST)


def stream() -> Column:
    """Of a row of a source's: what its order is kept in."""
    return fn.concat_ws("/", "channel", "instance")


def newest_after(before: DataFrame, rows: DataFrame) -> DataFrame:
    """With the good records of a batch: one row, `newest`."""
    seen = rows.where("reason is null").select("stream", fn.least("time_ms", "taken_ms").alias("newest_ms"))
    each = before.unionByName(seen).groupBy("stream").agg(fn.max("newest_ms").alias("newest_ms"))
    kept = each.orderBy(fn.desc("newest_ms"), "stream").limit(STREAMS_MAX)
    return kept.agg(fn.collect_list(fn.struct("stream", "newest_ms")).alias("newest"))
