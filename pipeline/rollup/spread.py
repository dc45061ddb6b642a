"""Distribute the roll-up over Spark's tasks.

Spark reads usage records, and each of its tasks sums them up to windows with polars. Windows of all levels
are packed into buckets by entity and broker. Spark shuffles the buckets, a few large binary values instead of
many rows. The tasks after the shuffle unpack their buckets, and sum up windows to hours and days.

One entity with most records is no bottleneck: before the shuffle, its records are in many tasks; after the
shuffle, it has at most 8,640 windows per day and broker.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from weir.pipeline.rollup.columns import DAY_S, ROLLUP
from weir.pipeline.rollup.periods import periods
from weir.pipeline.rollup.windows import merged, needed, windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET: Final = StructType([StructField("bucket", LongType()), StructField("windows", BinaryType())])
_RECORDS_AT_ONCE: Final = 500_000
"""Number of usage records that a task sums up at once."""
_ROWS_PER_BATCH: Final = 50_000
_KEYS: Final = ("cluster", "level", "user", "client_id", "broker")


def rolled(usage: DataFrame, window_s: int, days: int, buckets: int) -> DataFrame:
    """Return the rows of `columns.ROLLUP` for usage records of this number of whole days (of a cluster), each
    day divided into this number of `buckets`.

    There is about one task per bucket after the shuffle, so that a task writes files of few days.
    """
    packed = needed(usage, window_s * 1000).mapInArrow(partial(_packed, buckets=buckets), BUCKET)
    shuffled = packed.repartition(days * buckets, "bucket")
    return shuffled.mapInArrow(partial(_unpacked, window_s=window_s), ROLLUP)


def _packed(batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield buckets of windows from batches of usage records (columns: `rollup.windows.needed`)."""
    for records in _bunches(batches, _RECORDS_AT_ONCE):
        yield from _pack(windows(records), buckets)


def _bunches(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pl.DataFrame]:
    """Yield the batches together, in frames of about this number of rows."""
    bunch: list[pa.RecordBatch] = []
    for batch in batches:
        bunch.append(batch)
        if sum(each.num_rows for each in bunch) >= rows:
            yield _frame(bunch)
            bunch = []
    if bunch:
        yield _frame(bunch)


def _frame(bunch: list[pa.RecordBatch]) -> pl.DataFrame:
    frame = pl.from_arrow(pa.Table.from_batches(bunch))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _pack(found: pl.DataFrame, buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield the windows by bucket: the number of the day since 1970, times `buckets`, plus a hash."""
    day = pl.col("window_ms") // (DAY_S * 1000)
    within = (pl.struct(*_KEYS).hash() % buckets).cast(pl.Int64)
    parts = found.with_columns(bucket=day * buckets + within).partition_by(
        "bucket", as_dict=True, include_key=False
    )
    for (number,), part in parts.items():
        file = io.BytesIO()
        part.write_ipc_stream(file, compression="lz4")
        yield pa.RecordBatch.from_pydict({"bucket": [number], "windows": [file.getvalue()]})


def _unpacked(batches: Iterator[pa.RecordBatch], window_s: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `columns.ROLLUP` from buckets that contain whole days of entities at brokers."""
    parts = [
        pl.read_ipc_stream(io.BytesIO(part.as_buffer()))
        for batch in batches
        for part in batch.column("windows")
    ]
    if not parts:
        return
    whole = merged(parts)
    del parts
    kinds = to_arrow_schema(ROLLUP)
    for rows in periods(whole, window_s):
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kinds)
        yield from table.to_batches(max_chunksize=_ROWS_PER_BATCH)
