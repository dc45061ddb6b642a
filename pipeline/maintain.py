"""Maintain the tables: take rejected lines in again, delete old rows, compact files, delete unused files."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from weir.pipeline import tables
from weir.pipeline.ingest.batch import kept, take_records
from weir.pipeline.ingest.parse import DAY_MS, KINDS, SOURCE, IngestKind, Rules, parsed
from weir.pipeline.lake import Lake, exists, latest, read, sql_name, sql_text
from weir.pipeline.outcome import Outcome

HISTORY_DAYS: Final = 7
"""Number of days for which earlier versions of the tables can be read; the least that Delta Lake permits."""


def maintain(
    spark: SparkSession,
    lake: Lake,
    now_ms: int,
    *,
    keep_days: int | None = None,
    keep_rollup_days: int | None = None,
    history_days: int = HISTORY_DAYS,
) -> Outcome:
    """Maintain all tables. `now_ms` is the present Unix time (ms). Records are kept for `keep_days` days, and
    roll-ups for `keep_rollup_days`, by default for ever; days are deleted as a whole. Earlier versions of the
    tables can be read for `history_days` days, at least `HISTORY_DAYS`. A kill at any time loses nothing, and
    other jobs may run meanwhile.
    """
    keep_ms = None if keep_days is None else keep_days * DAY_MS
    again = {f"{kind} records": 0 for kind in KINDS}
    if (version := latest(spark, lake.rejected)) is not None:
        lines = read(spark, lake.rejected, tables.REJECTED, version)
        for kind, cluster in lines.select("kind", "cluster").distinct().collect():
            of_cluster = lines.where((fn.col("kind") == kind) & (fn.col("cluster") == cluster))
            rules = Rules(keep_ms, now_ms)
            again[f"{kind} records"] += _taken_again(of_cluster, lake, KINDS[kind], cluster, rules)
    notes = list[str]()
    records = dict.fromkeys((lake.usage, lake.trace, lake.rejected), keep_days)
    for path, days in (records | {lake.rollup: keep_rollup_days}).items():
        if days is not None and exists(spark, path):
            deleted = _expired(
                spark, path, now_ms - days * DAY_MS, "day" if path != lake.rejected else "taken_ms"
            )
            notes.append(f"{path}: {deleted:,} rows older than {days} days were deleted")
    for path in (lake.usage, lake.trace, lake.rejected, lake.rollup, lake.recommendation, lake.replay):
        if exists(spark, path):
            notes.append(_compacted(spark, path, history_days))
    where = {f"{kind} records": lake.path(kind) for kind in KINDS}
    return Outcome("maintain", wrote=again, where=where, notes=tuple(notes))


def _taken_again(lines: DataFrame, lake: Lake, kind: IngestKind, cluster: str, rules: Rules) -> int:
    """Parse rejected lines again, move those that are valid by now to their table; return their number."""
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


def _delete(lines: DataFrame, lake: Lake, kind: IngestKind, cluster: str) -> None:
    """Delete these rejected lines. Lines that ingest has rejected since stay."""
    lines.select("source", "line", "taken_ms").distinct().createOrReplaceTempView("valid")
    same = " AND ".join(f"old.{name} = valid.{name}" for name in ("source", "line", "taken_ms"))
    of_all = f"old.kind = '{kind.name}' AND old.cluster = {sql_text(cluster)}"
    table = sql_name(lake.rejected)
    lines.sparkSession.sql(
        f"MERGE INTO {table} AS old USING valid ON {of_all} AND {same} WHEN MATCHED THEN DELETE"
    ).collect()


def _expired(spark: SparkSession, path: str, oldest_ms: int, column: str) -> int:
    """Delete the rows of a table of days before that of `oldest_ms`, or of times (ms) before it; return their
    number.
    """
    oldest = f"date'{datetime.fromtimestamp(oldest_ms / 1000, UTC).date()}'" if column == "day" else oldest_ms
    delete = f"DELETE FROM {sql_name(path)} WHERE {column} < {oldest}"  # noqa: S608  # of no input
    (row,) = spark.sql(delete).collect()
    return max(0, int(row[0]))


def _compacted(spark: SparkSession, path: str, history_days: int) -> str:
    """Compact the files of a table and delete the files of old versions; return a remark."""
    (row,) = spark.sql(f"OPTIMIZE {sql_name(path)}").select("metrics.*").collect()
    spark.sql(f"VACUUM {sql_name(path)} RETAIN {history_days * 24} HOURS").collect()
    return f"{path}: {row['numFilesRemoved']:,} files became {row['numFilesAdded']:,}"
