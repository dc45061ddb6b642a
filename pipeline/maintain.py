"""Maintain the tables: take rejected lines in again, delete old rows, compact files, delete unused files."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from weir.pipeline import tables
from weir.pipeline.ingest.batch import kept, take_records
from weir.pipeline.ingest.parse import DAY_MS, KINDS, SOURCE, Kind, Rules, parsed
from weir.pipeline.lake import Lake, exists, latest, read, sql_name, sql_text
from weir.pipeline.outcome import Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    if (version := latest(spark, lake.rejected)) is None:
        return 0
    lines = read(spark, lake.rejected, tables.REJECTED, version).where(fn.col("kind") == kind.name)
    clusters = [row["cluster"] for row in lines.select("cluster").distinct().collect()]
    rules = Rules(retained.keep_ms, now_ms=now_ms)
    return sum(
        _of_cluster(lines.where(fn.col("cluster") == name), lake, kind, name, rules) for name in clusters
    )


def _of_cluster(lines: DataFrame, lake: Lake, kind: Kind, cluster: str, rules: Rules) -> int:
    number = fn.monotonically_increasing_id().cast("string")
    with kept(lines.withColumn("number", number)) as numbered:
        sources = numbered.select(fn.col("number").alias("source"), fn.col("line").cast("binary"), "taken_ms")
        with kept(parsed(sources.toDF(*SOURCE.names), kind, rules, files=False)) as rows:
            counts = take_records(rows, lake, kind, cluster, f"maintain {uuid.uuid4()}", 0)
            if counts.rejected < counts.read:
                # After a kill before this, the records are duplicates the next time.
                still = rows.where("line is not null").select(fn.col("source").alias("number"))
                _delete(numbered.join(still, "number", "left_anti"), lake, kind, cluster)
    return counts.new


def _delete(lines: DataFrame, lake: Lake, kind: Kind, cluster: str) -> None:
    """Delete these rejected lines. Lines that ingest has rejected since stay."""
    lines.select("source", "line", "taken_ms").distinct().createOrReplaceTempView("valid")
    same = " AND ".join(f"old.{name} = valid.{name}" for name in ("source", "line", "taken_ms"))
    of_all = f"old.kind = '{kind.name}' AND old.cluster = {sql_text(cluster)}"
    table = sql_name(lake.rejected)
    lines.sparkSession.sql(
        f"MERGE INTO {table} AS old USING valid ON {of_all} AND {same} WHEN MATCHED THEN DELETE"
    ).collect()


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
