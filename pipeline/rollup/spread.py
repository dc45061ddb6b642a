"""Distribute the roll-up over Spark's tasks.

Spark reads usage records, and each of its tasks sums them up to windows with polars. Windows of all levels
are packed into buckets by entity and broker. Spark shuffles the buckets, a few large binary values instead of
many rows. The tasks after the shuffle unpack their buckets, and sum up windows to hours and days.

One entity with most records is no bottleneck: before the shuffle, its records are in many tasks; after the
shuffle, it has at most 8,640 windows per day and broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from weir.pipeline import arrow
from weir.pipeline.rollup.columns import DAY_S, ENTITY, ROLLUP
from weir.pipeline.rollup.periods import periods
from weir.pipeline.rollup.windows import merged, needed, windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET: Final = StructType([StructField("bucket", LongType()), StructField("rows", BinaryType())])
_RECORDS_AT_ONCE: Final = 500_000
"""Number of usage records that a task sums up at once."""
_KEYS: Final = (*ENTITY, "broker")


def rolled(usage: DataFrame, window_s: int, days: int, buckets: int) -> DataFrame:
    """Return the rows of `columns.ROLLUP` for usage records of this number of whole days (of a cluster), each
    day divided into this number of `buckets`.

    There is about one task per bucket after the shuffle, so that a task writes files of few days.
    """
    packed = needed(usage, window_s * 1000).mapInArrow(partial(_packed, buckets=buckets), BUCKET)
    shuffled = packed.repartition(days * buckets, "bucket")
    return shuffled.mapInArrow(partial(_unpacked, window_s=window_s), ROLLUP)


def _packed(batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield buckets of windows from batches of usage records (columns: `rollup.windows.needed`). The number
    of a bucket is that of the day since 1970, times `buckets`, plus a hash.
    """
    day = pl.col("window_ms") // (DAY_S * 1000)
    within = (pl.struct(*_KEYS).hash() % buckets).cast(pl.Int64)
    for records in arrow.frames(batches, _RECORDS_AT_ONCE):
        yield from arrow.packed(windows(records).with_columns(bucket=day * buckets + within), ["bucket"])


def _unpacked(batches: Iterator[pa.RecordBatch], window_s: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `columns.ROLLUP` from buckets that contain whole days of entities at brokers."""
    parts = [arrow.unpacked(rows) for batch in batches for rows in batch.column("rows")]
    if not parts:
        return
    whole = merged(parts)
    del parts
    for rows in periods(whole, window_s):
        yield from arrow.batches(rows, ROLLUP)
