"""Pass frames of polars to Spark, and pack many rows into few binary values for a shuffle."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from weir.pipeline.lake import empty

_ROWS_PER_BATCH = 50_000
_CANDIDATES = 30
"""Numbers per partition among which `keys` chooses: each partition gets one almost surely."""


def frames(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pl.DataFrame]:
    """Yield the batches of a task together, in frames of about this number of rows."""
    bunch: list[pa.RecordBatch] = []
    for batch in batches:
        bunch.append(batch)
        if sum(each.num_rows for each in bunch) >= rows:
            yield pl.DataFrame(pa.Table.from_batches(bunch))
            bunch = []
    if any(batch.num_rows for batch in bunch):
        yield pl.DataFrame(pa.Table.from_batches(bunch))


def packed(rows: pl.DataFrame, by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield a row per value of the columns `by` (numbers); its binary column `rows` has the other columns."""
    for values, part in rows.partition_by(by, as_dict=True, include_key=False).items():
        file = io.BytesIO()
        part.write_ipc_stream(file, compression="lz4")
        keys = {name: [value] for name, value in zip(by, values, strict=True)}
        yield pa.RecordBatch.from_pydict({**keys, "rows": [file.getvalue()]})


def keys(spark: SparkSession, partitions: int) -> list[int]:
    """Return a number for each partition of `repartition(partitions, COLUMN)`. By Spark's hash, buckets with
    other numbers would share some partitions and leave others empty, and an empty one costs 0.2 s.
    """
    numbers = spark.range(0, _CANDIDATES * partitions, 1, 1)
    found = numbers.selectExpr(f"pmod(hash(id), {partitions}) AS partition", "id").collect()
    first = {row.partition: row.id for row in reversed(found)}
    return [first.get(partition, partition) for partition in range(partitions)]


def unpacked(value: pa.BinaryScalar) -> pl.DataFrame:
    """Return the rows in a value of the column `rows` that `packed` made."""
    return pl.read_ipc_stream(io.BytesIO(value.as_buffer()))


def table(rows: pl.DataFrame, columns: StructType | None = None) -> pa.Table:
    """Return the rows as a table of Arrow, with the types of Spark's `columns` if given."""
    found = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    return found if columns is None else found.cast(to_arrow_schema(columns))


def batches(rows: pl.DataFrame, columns: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the types of Spark's `columns`."""
    yield from table(rows, columns).to_batches(max_chunksize=_ROWS_PER_BATCH)


def collected(rows: DataFrame) -> pl.DataFrame:
    """Return all rows on the driver."""
    return pl.DataFrame(rows.toArrow())


def in_spark(rows: pl.DataFrame, spark: SparkSession, columns: StructType | None = None) -> DataFrame:
    """Return the rows as a frame of Spark, with the types of `columns` if given."""
    if rows.is_empty():  # PySpark 4.0.2 cannot convert a table without rows
        return empty(spark, columns or from_arrow_schema(table(rows).schema))
    return spark.createDataFrame(table(rows, columns))
