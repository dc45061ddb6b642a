"""Write one micro-batch into the tables, each partition as a whole.

After a kill, Spark repeats a batch with the same lines until its checkpoint has the batch. The steps of a
batch:

1. Delete the output of an earlier attempt. Only the first batch of a run can have such output. Options may
   have changed since that attempt, so that records may be late now that were good before.
2. Write good, late and malformed records. After a kill during this step, the repeated batch
   replaces the partitions that exist.
3. Write the ledger's row, which completes the batch. After a kill before this step, readers of the
   tables see an incomplete batch.
4. Spark adds the batch to its checkpoint. After a kill before this step, the batch is repeated from step 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import functions as fn

from weir.pipeline import tables
from weir.pipeline.files import Files
from weir.pipeline.ingest.ledger import LEDGER, newest_after, newest_before, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from weir.pipeline.ingest.parse import Kind
    from weir.pipeline.lake import Lake


@dataclass(slots=True)
class Counts:
    """Numbers of lines of one kind (usage or trace) that ingest has read: all, good, late and malformed."""

    read: int = 0
    good: int = 0
    late: int = 0
    malformed: int = 0

    def add(self, row: Row) -> None:
        """Add the counts of one micro-batch; `row` has a column for each field of this class."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + int(row[each.name]))

    def __str__(self) -> str:
        return f"{self.read:,} read, {self.good:,} good, {self.late:,} late, {self.malformed:,} malformed"


class Batches:
    """Writes the batches of one kind of records into the tables, and sums up their counts."""

    def __init__(self, lake: Lake, kind: Kind, late_after_ms: int, say: Callable[[str], None]) -> None:
        self._lake, self._kind, self._late_after_ms, self._say = lake, kind, late_after_ms, say
        self._is_first = True
        self.counts = Counts()
        self.failure: Exception | None = None
        """Exception that ended the stream; kept because Spark's own exception has only its text."""

    def take(self, rows: DataFrame, batch: int) -> None:
        """Write the lines of a micro-batch into the tables; Spark's `foreachBatch` calls this method. Keep an
        exception in `failure`, then raise it.
        """
        try:
            self._take(rows, batch)
        except Exception as error:
            self.failure = error
            raise

    def _take(self, parsed: DataFrame, batch: int) -> None:
        began_s = time.monotonic()
        spark = parsed.sparkSession
        spark.conf.set(
            "spark.sql.adaptive.enabled", "true"
        )  # Spark disables it for streams because of state, which this query lacks
        if self._is_first:
            clear(Files(spark), self._lake, self._kind, batch)
            self._is_first = False
        before = newest_before(spark, self._lake, self._kind.name, batch)
        rows = with_lateness(parsed, before, self._late_after_ms).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            row = self._write(rows, before, batch)
        finally:
            rows.unpersist()
        self.counts.add(row)
        seen = Counts()
        seen.add(row)
        self._say(f"{self._kind.name} batch {batch}: {seen} in {time.monotonic() - began_s:.1f} s")

    def _write(self, rows: DataFrame, before: DataFrame, batch: int) -> Row:
        """Write the records and malformed lines of a micro-batch into all tables; return one row with the
        numbers of lines (see `count`).
        """
        counted = count(rows).collect()[0]
        numbered = rows.withColumn("batch", fn.lit(batch).cast("long"))
        lake, kind = self._lake, self._kind
        columns = [*kind.columns.names, "day", "batch"]
        table = lake.usage if kind.name == "usage" else lake.trace
        if counted.good:
            good = numbered.where("reason is null and not late").select(*columns)
            tables.replace(good.hint("rebalance", "day"), table, "day", "batch")
        if counted.late:
            late = numbered.where("reason is null and late").select(*columns)
            tables.replace(late.hint("rebalance"), lake.late(kind.name), "batch")
        if counted.malformed:
            malformed = numbered.where("reason is not null").select(*tables.MALFORMED.names)
            tables.replace(malformed.hint("rebalance"), lake.malformed(kind.name), "batch")
        self._enter(rows, before, counted, batch)
        return counted

    def _enter(self, rows: DataFrame, before: DataFrame, counted: Row, batch: int) -> None:
        """Write the micro-batch's row of the ledger: its counts, and the newest time of each stream. `before`
        has the newest times before the batch.
        """
        known = {**counted.asDict(), "late_after_ms": self._late_after_ms, "batch": batch}
        row = newest_after(before, rows).select(
            *(
                fn.lit(known[each.name]).cast(each.dataType).alias(each.name)
                if each.name in known
                else each.name
                for each in LEDGER.fields
            )
        )
        tables.replace(row.coalesce(1), self._lake.ledger(self._kind.name), "batch")


def with_lateness(parsed: DataFrame, before: DataFrame, late_after_ms: int) -> DataFrame:
    """Add two columns to parsed lines: `stream`, and `late`, which is true if the record is late. `before`
    has the newest time of each stream before the batch (`ledger.NEWEST`).
    """
    joined = parsed.withColumn("stream", stream()).join(fn.broadcast(before), "stream", "left")
    late = fn.col("time_ms") < fn.col("newest_ms") - late_after_ms
    return joined.withColumn("late", fn.coalesce(late, fn.lit(False))).drop("newest_ms")


def count(rows: DataFrame) -> DataFrame:
    """Return one row with the numbers of all, good, late and malformed lines, the first and last time (ms) of
    good records, and `taken_ms`, the time at which Spark began the batch.
    """
    is_good = fn.col("reason").isNull()
    in_table = is_good & ~fn.col("late")
    return rows.agg(
        fn.count("*").alias("read"),
        fn.count_if(in_table).alias("good"),
        fn.count_if(is_good & fn.col("late")).alias("late"),
        fn.count_if(~is_good).alias("malformed"),
        fn.min(fn.when(in_table, fn.col("time_ms"))).alias("first_ms"),
        fn.max(fn.when(in_table, fn.col("time_ms"))).alias("last_ms"),
        fn.max("taken_ms").alias("taken_ms"),
    )


_LEFT_BY_A_KILL: Final = ".spark-staging-*"


def clear(files: Files, lake: Lake, kind: Kind, batch: int) -> None:
    """Delete all rows that an earlier attempt at a micro-batch wrote into the tables, and temporary files
    that killed writers left behind.
    """
    table = lake.usage if kind.name == "usage" else lake.trace
    by_batch = [lake.late(kind.name), lake.malformed(kind.name), lake.ledger(kind.name)]
    patterns = [f"{table}/day=*/batch={batch}", *(f"{path}/batch={batch}" for path in by_batch)]
    patterns += [f"{path}/{_LEFT_BY_A_KILL}" for path in (table, *by_batch)]
    for pattern in patterns:
        for path in files.matching(pattern):
            files.delete(path)
