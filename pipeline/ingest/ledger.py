"""The ledger: one row per batch, with its counts and the newest time of each stream, which decides which
records are late.

A record is late if its time is more than the allowed delay before the newest record that an *earlier batch*
has read from the same stream. A stream is one instance of Weir, in a topic one of its partitions, so that its
records are in order of time. Therefore

- a repeated batch finds the same records late, because the rows of earlier batches do not change;
- a backlog makes no record late if Spark reads one partition faster than another;
- an instance whose clock is ahead makes no records of other instances late. Its own newest time is limited to
  the time at which Spark began the batch.

Each row has the newest times of all streams, so that a batch reads only the row before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from weir.pipeline import tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from weir.pipeline.lake import Lake

NEWEST: Final = StructType([StructField("stream", StringType()), StructField("newest_ms", LongType())])
LEDGER: Final = StructType(
    [
        *(StructField(name, LongType()) for name in ("read", "good", "late", "malformed")),
        StructField("first_ms", LongType()),  # of good records; null without good records
        StructField("last_ms", LongType()),
        StructField("taken_ms", LongType()),  # when Spark began the batch
        StructField("late_after_ms", LongType()),
        # Newest time of each stream, in this batch and all earlier ones.
        StructField("newest", ArrayType(NEWEST)),
        tables.BATCH,
    ]
)
STREAMS_MAX: Final = 10_000
"""Maximum number of streams in a row of the ledger. Of more streams, the row keeps those with the newest
records; records of the others are never late.
"""


def newest_before(spark: SparkSession, lake: Lake, kind: str, batch: int) -> DataFrame:
    """Return the time (ms) of the newest record that earlier batches have read from each stream, in the
    columns of `NEWEST`.
    """
    row = tables.read(spark, lake.path("ledger", kind, f"batch={batch - 1}"), StructType(LEDGER.fields[:-1]))
    return row.select(fn.inline("newest")).to(NEWEST)


def stream() -> Column:
    """Return the column with the name of the stream that a line belongs to: `channel`, a slash, and the
    instance of Weir.
    """
    return fn.concat_ws("/", "channel", "instance")


def newest_after(before: DataFrame, rows: DataFrame) -> DataFrame:
    """Return one row with the array `newest`: the time of each stream's newest record, from `before` and from
    the good records of the batch. `rows` has the columns `reason`, `stream`, `time_ms` and `taken_ms`.
    """
    seen = rows.where("reason is null").select("stream", fn.least("time_ms", "taken_ms").alias("newest_ms"))
    each = before.unionByName(seen).groupBy("stream").agg(fn.max("newest_ms").alias("newest_ms"))
    kept = each.orderBy(fn.desc("newest_ms"), "stream").limit(STREAMS_MAX)
    return kept.agg(fn.collect_list(fn.struct("stream", "newest_ms")).alias("newest"))
