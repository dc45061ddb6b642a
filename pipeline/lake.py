"""The pipeline's Delta tables: their paths, and functions that read and write them.

All tables are below one root, on any file system that Spark can write to. A write is one version of a table:
readers see either all of its rows or none, and a kill during a write leaves the version before. A missing
table reads as empty. Columns that a table does not have yet are added by the next write, and read as null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import DataType, StructField, StructType

from weir.pipeline.tables import BY

_VERSIONS: Final = 20
"""Number of versions of a table in which `append_once` looks for its rows."""
_ATTEMPTS: Final = 5
_CONFLICT: Final = r"io\.delta\.exceptions\.|DELTA_(CONCURRENT|PROTOCOL_CHANGED|METADATA_CHANGED)"
"""Pattern in the text of Spark's errors for conflicts of concurrent writers."""
_MISSING: Final = ("PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND")


class _Table:
    """Path of a table below the root of a lake, from the name of the attribute."""

    def __set_name__(self, lake: type[Lake], name: str) -> None:
        self._name = name

    def __get__(self, lake: Lake, kind: type[Lake]) -> str:
        return lake.path(self._name)


@dataclass(frozen=True, slots=True)
class Lake:
    """The paths of all tables below a root, such as `/var/lib/weir/usage` or `s3a://bucket/usage`. Spark's
    streams store below `checkpoint` which parts of a source they have read.
    """

    root: str

    def path(self, *parts: str) -> str:
        """Return the path below the root that consists of these parts."""
        return "/".join((self.root.rstrip("/"), *parts))

    usage = _Table()
    """Ingested usage records (`tables.USAGE`)."""
    trace = _Table()
    """Ingested request traces (`tables.TRACE`)."""
    rejected = _Table()
    """Lines that are not valid records (`tables.REJECTED`)."""
    rollup = _Table()
    """Hours and days of each entity at each broker (`pipeline.rollup.columns.ROLLUP`)."""
    recommendation = _Table()
    """Proposals of the latest recommendation (`tables.RECOMMENDATION`)."""
    replay = _Table()
    """Latest replay: one row per budget and hour under each candidate (`tables.REPLAY`)."""


def exists(spark: SparkSession, path: str) -> bool:
    """Return True if there is a table at `path`."""
    try:
        spark.read.format("delta").load(path).schema.fieldNames()  # Spark Connect looks only when asked
    except AnalysisException as error:
        if error.getCondition() not in _MISSING:
            raise
        return False
    return True


def latest(spark: SparkSession, path: str) -> int | None:
    """Return the number of the latest version of the table at `path`; None if there is no table."""
    if not exists(spark, path):
        return None
    (last,) = spark.sql(f"DESCRIBE HISTORY {sql_name(path)} LIMIT 1").collect()
    return int(last["version"])


def read(spark: SparkSession, path: str, columns: StructType, version: int | None = None) -> DataFrame:
    """Return a version of the table at `path`, by default the latest, with these columns."""
    if not exists(spark, path):
        return empty(spark, columns)
    reader = spark.read.format("delta")
    table = (reader if version is None else reader.option("versionAsOf", version)).load(path)
    present = {each.name: each.dataType for each in table.schema}
    return table.select(*(_read(each, present.get(each.name)) for each in columns.fields))


def newest(rows: DataFrame, time_ms: str) -> dict[str, float]:
    """Return the largest Unix time (s) of each cluster in the column `time_ms` (ms) of a table's rows, which
    shows how far the table is behind. Only the newest day of each cluster is read.
    """
    found = {}
    for cluster, day in rows.groupBy("cluster").agg(fn.max("day")).collect():
        of_day = rows.where((fn.col("cluster") == cluster) & (fn.col("day") == day))
        ((found[cluster],),) = of_day.agg(fn.max(time_ms) / 1000).collect()
    return found


def empty(spark: SparkSession, columns: StructType) -> DataFrame:
    """Return a table with these columns and no rows. Spark knows that it is empty and starts no tasks; for
    `createDataFrame([])` Spark would start Python processes.
    """
    return spark.range(1).where(fn.lit(False)).select(*map(_null, columns.fields))


def filled(name: str, default: int | str = 0) -> Column:
    """Return the column or field `name`, with `default` in place of null."""
    return fn.coalesce(name, fn.lit(default))


def _read(column: StructField, present: DataType | None) -> Column:
    """Return a column of a table whose type there is `present`: fields that the table lacks are null."""
    if present is None:
        return _null(column)
    found, wanted = fn.col(column.name), column.dataType
    if not isinstance(present, StructType) or not isinstance(wanted, StructType):
        return found
    within = set(present.names)
    if within.issuperset(wanted.names):
        return found
    fields = (found[each.name].alias(each.name) if each.name in within else _null(each) for each in wanted)
    return fn.when(found.isNotNull(), fn.struct(*fields)).alias(column.name)


def _null(column: StructField) -> Column:
    return fn.lit(None).cast(column.dataType).alias(column.name)


def append_once(rows: DataFrame, path: str, app_id: str, version: int) -> int:
    """Add rows to the table at `path`, unless `append_once` with the same `app_id` and this or a later
    `version` has added rows to it before. Return the number of rows that this or the earlier call added; 0 if
    the earlier call was too many versions of the table ago.
    """
    told = f"{app_id} {version}"
    writer = _writer(rows).options(txnAppId=app_id, txnVersion=version, userMetadata=told)
    _save(writer.mode("append"), path)
    history = rows.sparkSession.sql(f"DESCRIBE HISTORY {sql_name(path)} LIMIT {_VERSIONS}")
    added = history.where(fn.col("userMetadata") == told).select("operationMetrics.numOutputRows").first()
    return 0 if added is None else int(added[0])


def sql_name(path: str) -> str:
    """Return the name of the table at `path` in SQL."""
    return f"delta.`{path.replace('`', '``')}`"


def sql_text(text: str) -> str:
    """Return a text as a literal in SQL.

    >>> sql_text("it's")
    "'it\\\\'s'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def replace(rows: DataFrame, path: str, where: str | None = None) -> None:
    """Replace those rows of the table at `path` that fulfil the SQL condition `where`, by default all rows.
    Raises AnalysisException if a new row does not fulfil it.
    """
    writer = _writer(rows) if where is None else _writer(rows).option("replaceWhere", where)
    _save(writer.mode("overwrite"), path)


def _save(writer: DataFrameWriter, path: str) -> None:
    """Write a version of the table at `path`. Begin again if another job has written a version that Delta
    Lake cannot put before this one, such as the first.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            writer.save(path)
            return
        except (PySparkException, Py4JJavaError) as error:
            if not left or not re.search(_CONFLICT, str(error)):
                raise


def _writer(rows: DataFrame) -> DataFrameWriter:
    by = [name for name in BY if name in rows.columns] if BY[-1] in rows.columns else []
    return rows.write.format("delta").partitionBy(*by).option("mergeSchema", True)
