"""The columns of the pipeline's tables; `lake` reads and writes them.

Tables with the columns of `BY` are partitioned by these columns.
"""

from __future__ import annotations

from typing import Final

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

CLUSTER: Final = StructField("cluster", StringType())
"""Name of the Kafka cluster of a row, chosen by the operator (`--cluster`)."""
DAY: Final = StructField("day", DateType())
"""Day (UTC) of a record's `time_ms`, or of a roll-up's period."""
SECONDS: Final = StructField("seconds", LongType())
"""Length (s) of a period of the roll-up: 3600 or 86400."""
BY: Final = (CLUSTER.name, SECONDS.name, DAY.name)
"""Columns by which tables are partitioned, if they have the day."""

USAGE_RECORD: Final = StructType.fromJson(schema(UsageRecord))
TRACE_RECORD: Final = StructType.fromJson(schema(TraceRecord))
BY_QUOTA: Final = StructType.fromJson(schema(ByQuota))
USAGE: Final = StructType([*USAGE_RECORD.fields, CLUSTER, DAY])
TRACE: Final = StructType([*TRACE_RECORD.fields, CLUSTER, DAY])
REJECTED: Final = StructType(
    [
        StructField("kind", StringType()),  # usage or trace
        CLUSTER,
        StructField("line", StringType()),  # its beginning, if it is long
        StructField("reason", StringType()),
        StructField("source", StringType()),  # path of the file, or topic/partition/offset
        StructField("taken_ms", LongType()),  # time of the batch that read the line
    ]
)
"""Columns of lines that are not valid records."""

RECOMMENDATION: Final = StructType(
    [
        CLUSTER,
        StructField("user", StringType()),
        StructField("client_id", StringType()),
        StructField("client_id_prefix", StringType()),  # null unless the client-ids share a prefix's quota
        StructField("quota", StringType()),  # a name in `rollup.columns.RATES`
        StructField("used", DoubleType()),  # the chosen statistic of the usage
        StructField("current", DoubleType()),  # the limit of the current quota file, null for none
        StructField("lower", DoubleType()),  # enough for the busiest hour of half of the days
        StructField("proposed", DoubleType()),
        StructField("upper", DoubleType()),  # enough for the busiest hour; null if demand was held back
        StructField("confidence", DoubleType()),  # chance (0 to 1) that the next day stays below `upper`
        StructField("tier", DoubleType()),  # the least of a few common quotas that is enough
        StructField("in_default", BooleanType()),  # True if it has no entry, only the default one
        StructField("flags", ArrayType(StringType())),  # `pipeline.recommend.flags.MEANINGS`
        StructField("reason", StringType()),
        StructField("rollup_version", LongType()),  # version of the roll-up's table that was read
    ]
)
"""Proposals of the latest recommendation for each cluster."""
REPLAY: Final = StructType(
    [
        CLUSTER,
        StructField("candidate", StringType()),  # name of the quota file; "recorded" for the records
        StructField("quota", StringType()),
        StructField("user", StringType()),  # of the charged budget: null if all users share it
        StructField("client_id", StringType()),  # ends with * for a prefix
        StructField("broker", LongType()),  # null for mutations
        StructField("start_ms", LongType()),  # beginning of the hour
        StructField("limit", DoubleType()),
        StructField("demand", StringType()),  # see `quotas.replay_demand`: recorded, held back, unknown
        StructField("throttle_ms_lower", LongType()),  # bounds of the sum of the throttle times,
        StructField("throttle_ms_upper", LongType()),  # equal if the demand is recorded; null if unknown
        StructField("throttled_s_lower", DoubleType()),  # bounds of the time during which any client waits,
        StructField("throttled_s_upper", DoubleType()),  # likewise
        StructField("charged", DoubleType()),  # this and the other columns: by the requests as recorded
        StructField("charges", LongType()),
        StructField("violations", LongType()),
        StructField("first_ms", LongType()),  # first and last throttle within the hour, null for none
        StructField("last_ms", LongType()),
        StructField("given_up", LongType()),  # requests that waited longer than the client's timeout
    ]
)
