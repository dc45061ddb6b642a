"""Write micro-batches into the tables. The name of a checkpoint (`app_id`) and the number of the batch
identify a batch that Spark repeats after a kill.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import add
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from weir.pipeline import tables
from weir.pipeline.ingest.parse import IngestKind
from weir.pipeline.lake import Lake, append_once, read

_ROWS_PER_FILE: Final = 250_000
"""Number of rows of a file of a table, roughly; more files are written in parallel."""


class LineCounts(NamedTuple):
    """Numbers of lines of one kind: read, new records, records that the tables had, and rejected lines."""

    read: int = 0
    new: int = 0
    duplicates: int = 0
    rejected: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in self._asdict().items())


class Batches:
    """Writes the batches of one kind of records of one cluster, and sums up their numbers of lines."""

    def __init__(self, lake: Lake, kind: IngestKind, cluster: str, say: Callable[[str], None]) -> None:
        self._lake, self._kind, self._cluster, self._say = lake, kind, cluster, say
        self.app_id: Future[str] = Future()
        """Name of the stream, which its checkpoint stores."""
        self.counts = LineCounts()
        self.failure: Exception | None = None
        """Exception that ended the stream; kept because Spark's own exception has only its text."""

    def take(self, rows: DataFrame, batch: int) -> None:
        """Write a micro-batch (for Spark's `foreachBatch`). Keep an exception in `failure`, and raise it."""
        try:
            began_s = time.monotonic()
            # Spark disables it for streams because of state, which this query lacks.
            rows.sparkSession.conf.set("spark.sql.adaptive.enabled", "true")
            seen = take(rows, self._lake, self._kind, self._cluster, self.app_id.result(), batch)
        except Exception as error:
            self.failure = error
            raise
        self.counts = LineCounts(*map(add, self.counts, seen))
        self._say(f"{self._kind.name} batch {batch}: {seen} in {time.monotonic() - began_s:.1f} s")


def take(
    parsed: DataFrame, lake: Lake, kind: IngestKind, cluster: str, app_id: str, batch: int
) -> LineCounts:
    """Add parsed lines (`IngestKind.parsed`) to the tables once per batch of `app_id`; return the numbers."""
    with kept(parsed) as rows:
        counts = take_records(rows, lake, kind, cluster, app_id, batch)
        if counts.rejected:
            names = {"kind": fn.lit(kind.name), "cluster": fn.lit(cluster)}
            lines = rows.where("line is not null").withColumns(names).select(*tables.REJECTED.names)
            append_once(lines.coalesce(1), lake.rejected, app_id, batch)
    return counts


def take_records(
    rows: DataFrame, lake: Lake, kind: IngestKind, cluster: str, app_id: str, batch: int
) -> LineCounts:
    """Add the records among parsed lines to their table, as `take` does; return the numbers of all lines."""
    counted = rows.agg(fn.count("*"), fn.count("line"), fn.min("time_ms"), fn.max("time_ms")).collect()
    ((read_, rejected, *extent_ms),) = counted
    good = read_ - rejected
    if not good:
        return LineCounts(read_, rejected=rejected)
    day = fn.to_date(fn.timestamp_millis("time_ms"))
    records = rows.where("line is null").select(
        *kind.columns.names, fn.lit(cluster).alias("cluster"), day.alias("day")
    )
    path = lake.path(kind.name)
    old = read(rows.sparkSession, path, StructType([*kind.columns.fields, tables.CLUSTER, tables.DAY]))
    days = (datetime.fromtimestamp(ms // 1000, UTC).date() for ms in extent_ms)
    # Delta reads only files that may have such records.
    old = old.where(
        (fn.col("cluster") == cluster) & fn.col("day").between(*days) & fn.col("time_ms").between(*extent_ms)
    )
    new = _without_duplicates(records, old, list(kind.key)).coalesce(1 + good // _ROWS_PER_FILE)
    added = append_once(new, path, app_id, batch)
    return LineCounts(read_, added, good - added, rejected)


def _without_duplicates(good: DataFrame, old: DataFrame, key: list[str]) -> DataFrame:
    """Return one record of each key that `old` does not have. Hashes of the keys show whether any duplicate
    exists, so that usually no whole record is sorted or shuffled.
    """
    hashes = good.select(*key).union(old.select(*key)).select(fn.xxhash64(*key).alias("hash"))
    (found,) = hashes.agg(fn.count("*").alias("all"), fn.count_distinct("hash").alias("distinct")).collect()
    if found["all"] == found["distinct"]:
        return good
    return good.dropDuplicates(key).join(old.select(*key), key, "left_anti").select(*good.columns)


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows during the block, so that Spark computes them only once."""
    cached = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield cached
    finally:
        cached.unpersist()
