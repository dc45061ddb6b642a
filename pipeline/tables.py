"""The columns of the pipeline's tables, and functions that read and write tables.

Tables are partitioned Parquet. A missing table reads as empty. `replace` replaces whole partitions, so that a
job that is repeated after a kill does not double rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from weir.usage.records import ByQuota, TraceRecord, UsageRecord
from weir.usage.schema import schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY: Final = StructField("day", DateType())
"""Day (UTC) of a record's `time_ms`; tables are partitioned by it."""
BATCH: Final = StructField("batch", LongType())
"""Spark's number of the micro-batch that wrote the row; tables are partitioned by it."""

USAGE_RECORD: Final = StructType.fromJson(schema(UsageRecord))
TRACE_RECORD: Final = StructType.fromJson(schema(TraceRecord))
BY_QUOTA: Final = StructType.fromJson(schema(ByQuota))
USAGE: Final = StructType([*USAGE_RECORD.fields, DAY, BATCH])
TRACE: Final = StructType([*TRACE_RECORD.fields, DAY, BATCH])
MALFORMED: Final = StructType(
    [
        StructField("line", StringType()),
        StructField("reason", StringType()),
        StructField("source", StringType()),
        BATCH,
    ]
)
"""Columns of malformed lines; `source` is the file, or topic/partition/offset."""

RATES: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
"""Names of the rates in roll-ups. Each rate has the unit of the quota that has the same name."""
RATE: Final = StructType([StructField(name, DoubleType()) for name in ("mean", "p50", "p95", "p99", "max")])
"""A rate of one entity at one broker; the rate of mutations is that of the whole cluster. `mean` is the
average over the period at the busiest broker. The percentiles and `max` are over the windows, at any broker,
in which the rate was above 0.
"""
SECONDS_BY_QUOTA: Final = StructType([StructField(field.name, DoubleType()) for field in BY_QUOTA.fields])
LEVELS: Final = ("user-client-id", "user", "client-id")
"""Levels of entities in roll-ups: pairs of user and client-id, users, client-ids."""
ROLLUP: Final = StructType(
    [
        StructField("level", StringType()),
        StructField("user", StringType()),  # null at level client-id
        StructField("client_id", StringType()),  # null at level user
        StructField("start_ms", LongType()),
        StructField("seconds", LongType()),  # length of the period: 3600 or 86400
        StructField("requests", LongType()),
        StructField("bytes_in", LongType()),
        StructField("bytes_out", LongType()),
        StructField("produced_bytes", LongType()),  # as charged
        StructField("fetched_bytes", LongType()),  # as charged
        StructField("request_time_us", DoubleType()),
        StructField("mutations", LongType()),
        StructField("sessions_max", LongType()),  # at one broker: see `pipeline.rollup.windows`
        StructField("errors", LongType()),
        *(StructField(name, RATE) for name in RATES),
        StructField("active_s", DoubleType()),  # total length of the windows with usage, at any broker
        StructField("throttle_ms", BY_QUOTA),
        StructField("violations", BY_QUOTA),
        StructField("throttled_s", SECONDS_BY_QUOTA),  # total length of the throttled windows
        StructField("brokers", LongType()),
        StructField("busiest_broker", LongType()),  # by bytes in and out, then requests
        StructField("skew", DoubleType()),  # busiest broker's bytes / mean of its brokers; 1: even
        DAY,
    ]
)
ROLLED: Final = StructType(
    [
        StructField("batches", LongType()),
        StructField("files", LongType()),
        StructField("bytes", LongType()),
        StructField("digest", LongType()),  # hash of the file names, which change when a batch is rewritten
        StructField("window_s", LongType()),
        StructField("records", LongType()),
        DAY,
    ]
)
"""Columns of the table with one row per rolled-up day. They identify the usage files that the day's roll-ups
contain, so that changed days are found.
"""
RECOMMENDATION: Final = StructType(
    [
        StructField("user", StringType()),
        StructField("client_id", StringType()),
        StructField("client_id_prefix", StringType()),  # null unless the client-ids share a prefix's quota
        StructField("quota", StringType()),  # one of RATES
        StructField("used", DoubleType()),  # the chosen statistic of the usage
        StructField("current", DoubleType()),  # the limit of the current quota file, null for none
        StructField("proposed", DoubleType()),
        StructField("in_default", BooleanType()),  # True if it has no entry, only the default one
        StructField("flags", ArrayType(StringType())),  # `pipeline.recommend.flags.MEANINGS`
        StructField("reason", StringType()),
    ]
)
REPLAY: Final = StructType(
    [
        StructField("candidate", StringType()),  # name of the quota file; "recorded" for the records
        StructField("quota", StringType()),
        StructField("user", StringType()),  # of the charged budget: null if all users share it
        StructField("client_id", StringType()),  # ends with * for a prefix
        StructField("broker", LongType()),  # null for mutations
        StructField("start_ms", LongType()),  # beginning of the hour
        StructField("limit", DoubleType()),
        StructField("charged", DoubleType()),
        StructField("charges", LongType()),
        StructField("violations", LongType()),
        StructField("throttle_ms", LongType()),  # sum of the throttle times
        StructField("throttled_s", DoubleType()),  # time during which any client waited
        StructField("first_ms", LongType()),  # first and last throttle within the hour, null for none
        StructField("last_ms", LongType()),
        StructField("given_up", LongType()),  # requests that waited longer than the client's timeout
    ]
)


def read(spark: SparkSession, path: str, columns: StructType) -> DataFrame:
    """Read the Parquet table at `path` with these columns; return an empty table if the path does not
    exist.
    """
    try:
        return spark.read.schema(columns).parquet(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return empty(spark, columns)


def empty(spark: SparkSession, columns: StructType) -> DataFrame:
    """Return a table with these columns and no rows. Spark knows that it is empty and starts no tasks; for
    `createDataFrame([])` Spark would start Python processes.
    """
    nothing = (sql.lit(None).cast(field.dataType).alias(field.name) for field in columns.fields)
    return spark.range(1).where(sql.lit(False)).select(*nothing)


def replace(rows: DataFrame, path: str, *by: str) -> None:
    """Write rows to the table at `path`, partitioned by the columns `by`. Each partition that occurs in the
    rows is replaced as a whole; other partitions stay.
    """
    rows.write.partitionBy(*by).option("partitionOverwriteMode", "dynamic").mode("overwrite").parquet(path)
