"""Maintain the tables: take rejected lines in again, delete old rows, compact files, delete unused files."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from weir.pipeline import tables
from weir.pipeline.ingest.batch import kept, new_records, rejected
from weir.pipeline.ingest.parse import DAY_MS, KINDS, SOURCE, Kind, Rules, parsed
from weir.pipeline.lake import Lake, append_once, exists, read, replace, sql_name, sql_text
from weir.pipeline.outcome import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY_DAYS: Final = 7
"""Number of days for which earlier versions of the tables can be read; the least that Delta Lake permits."""


@dataclass(frozen=True, slots=True)
class Retained:
    """Settings of how long data are kept."""

    days: int | None = None
    """Number of days for which rows are kept; None to keep all. Days are deleted as a whole."""
    history_days: int = HISTORY_DAYS
    """Number of days for which earlier versions of the tables can be read, at least `HISTORY_DAYS`."""

    @property
    def keep_ms(self) -> int | None:
        """Age (ms) beyond which records are rejected."""
        return None if self.days is None else self.days * DAY_MS


def maintain(spark: SparkSession, lake: Lake, retained: Retained, now_ms: int) -> Outcome:
    """Maintain all tables. `now_ms` is the present Unix time (ms). A kill at any time loses nothing, and
    other jobs may run meanwhile.
    """
    again = {
        f"{kind.name} records": _taken_again(spark, lake, kind, retained, now_ms) for kind in KINDS.values()
    }
    notes = list[str]()
    if retained.keep_ms is not None:
        deleted = _expired(spark, lake, now_ms - retained.keep_ms)
        notes.append(f"deleted: {deleted:,} rows older than {retained.days} days")
    for path in _paths(lake):
        if compacted := _compacted(spark, path, retained.history_days):
            notes.append(compacted)
    where = {name: lake.path(name.split()[0]) for name in again}
    return Outcome("maintain", wrote=again, where=where, notes=tuple(notes))


def _paths(lake: Lake) -> list[str]:
    return [lake.usage, lake.trace, lake.rejected, lake.rollup, lake.recommendation, lake.replay]


def _taken_again(spark: SparkSession, lake: Lake, kind: Kind, retained: Retained, now_ms: int) -> int:
    """Parse the rejected lines of a kind again, move those that are valid by now to the kind's table, and
    return their number.
    """
    lines = read(spark, lake.rejected, tables.REJECTED).where(fn.col("kind") == kind.name)
    clusters = [row["cluster"] for row in lines.select("cluster").distinct().collect()]
    return sum(_of_cluster(spark, lake, kind, cluster, retained, now_ms) for cluster in clusters)


def _of_cluster(
    spark: SparkSession, lake: Lake, kind: Kind, cluster: str, retained: Retained, now_ms: int
) -> int:
    where = (fn.col("kind") == kind.name) & (fn.col("cluster") == cluster)
    lines = read(spark, lake.rejected, tables.REJECTED).where(where)
    sources = lines.withColumn("content", fn.col("line").cast("binary")).select(*SOURCE.names)
    with kept(parsed(sources, kind, Rules(retained.keep_ms, now_ms=now_ms), files=False)) as rows:
        (found,) = (
            rows.where("line is null")
            .agg(
                fn.count("*").alias("count"),
                fn.min("time_ms").alias("first"),
                fn.max("time_ms").alias("last"),
            )
            .collect()
        )
        if not found["count"]:
            return 0
        new = new_records(rows, lake, kind, cluster, found["first"], found["last"])
        added = append_once(new.coalesce(1), lake.path(kind.name), f"maintain {uuid.uuid4()}", 0)
        # After a kill before this, the records are duplicates the next time.
        rest = rejected(rows, cluster, kind.name).coalesce(1)
        replace(rest, lake.rejected, f"kind = '{kind.name}' and cluster = {sql_text(cluster)}")
    return added


def _expired(spark: SparkSession, lake: Lake, oldest_ms: int) -> int:
    """Delete the days before the day of `oldest_ms` (Unix time), and lines that were rejected before it.
    Return the number of rows.
    """
    day = datetime.fromtimestamp(oldest_ms / 1000, UTC).date()
    by_day = (lake.usage, lake.trace, lake.rollup)
    before = dict.fromkeys(by_day, f"day < date'{day}'")
    before[lake.rejected] = f"taken_ms < {oldest_ms}"
    deleted = 0
    for path, where in before.items():
        if exists(spark, path):
            delete = f"DELETE FROM {sql_name(path)} WHERE {where}"  # noqa: S608  # of no input
            (row,) = spark.sql(delete).collect()
            deleted += max(0, row[0])
    return deleted


def _compacted(spark: SparkSession, path: str, history_days: int) -> str | None:
    """Compact the files of a table and delete the files of old versions; return a remark, None if there is no
    such table.
    """
    if not exists(spark, path):
        return None
    (row,) = spark.sql(f"OPTIMIZE {sql_name(path)}").select("metrics.*").collect()
    spark.sql(f"VACUUM {sql_name(path)} RETAIN {history_days * 24} HOURS").collect()
    return f"{path}: {row['numFilesRemoved']:,} files became {row['numFilesAdded']:,}"
