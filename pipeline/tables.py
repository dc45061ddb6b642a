"""The columns of the pipeline's tables; `lake` reads and writes them.

Tables with the columns of `BY` are partitioned by these columns.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, DateType, LongType, StringType, StructField, StructType

from weir.usage.records import ByQuota, TraceRecord, UsageRecord
from weir.usage.schema import schema

CLUSTER: Final = StructField("cluster", StringType())
"""Name of the Kafka cluster of a row, chosen by the operator (`--cluster`)."""
DAY: Final = StructField("day", DateType())
"""Day (UTC) of a record's `time_ms`, or of a roll-up's period."""
SECONDS: Final = StructField("seconds", LongType())
"""Length (s) of a period of the roll-up: 3600 or 86400."""
CLIENT: Final = ("user", "client_id")
"""Columns with the names of a client, or of an entity of a roll-up."""
BY: Final = (CLUSTER.name, SECONDS.name, DAY.name)
"""Columns by which tables are partitioned, if they have the day."""

USAGE_RECORD: Final = StructType.fromJson(schema(UsageRecord))
TRACE_RECORD: Final = StructType.fromJson(schema(TraceRecord))
BY_QUOTA: Final = StructType.fromJson(schema(ByQuota))
USAGE: Final = StructType([*USAGE_RECORD.fields, CLUSTER, DAY])
TRACE: Final = StructType([*TRACE_RECORD.fields, CLUSTER, DAY])
REJECTED: Final = (
    StructType()
    .add("kind", "string")  # usage or trace
    .add(CLUSTER)
    .add("line", "string")  # its beginning, if it is long
    .add("reason", "string")
    .add("source", "string")  # path of the file, or topic/partition/offset
    .add("taken_ms", "long")  # time of the batch that read the line
)
"""Columns of lines that are not valid records."""

RECOMMENDATION: Final = (
    StructType([CLUSTER])
    .add("user", "string")
    .add("client_id", "string")
    .add("client_id_prefix", "string")  # null unless the client-ids share a prefix's quota
    .add("quota", "string")  # a name in `rollup.columns.RATES`
    .add("used", "double")  # the chosen statistic of the usage
    .add("current", "double")  # the limit of the current quota file, null for none
    .add("lower", "double")  # enough for the busiest hour of half of the days
    .add("proposed", "double")
    .add("upper", "double")  # enough for the busiest hour; null if demand was held back
    .add("confidence", "double")  # chance (0 to 1) that the next day stays below `upper`
    .add("tier", "double")  # the least of a few common quotas that is enough
    .add("in_default", "boolean")  # True if it has no entry, only the default one
    .add("flags", ArrayType(StringType()))  # `pipeline.recommend.flags.MEANINGS`
    .add("reason", "string")
    .add("rollup_version", "long")  # version of the roll-up's table that was read
)
"""Proposals of the latest recommendation for each cluster."""
REPLAY: Final = (
    StructType([CLUSTER])
    .add("candidate", "string")  # name of the quota file; "recorded" for the records
    .add("quota", "string")
    .add("user", "string")  # of the charged budget: null if all users share it
    .add("client_id", "string")  # ends with * for a prefix
    .add("group", "string")  # of the charged budget; null if it is no group's
    .add("broker", "long")  # null for mutations
    .add("start_ms", "long")  # beginning of the hour
    .add("limit", "double")
    .add("demand", "string")  # see `quotas.replay_demand`: recorded, held back, unknown
    .add("throttle_ms_lower", "long")  # bounds of the sum of the throttle times,
    .add("throttle_ms_upper", "long")  # equal if the demand is recorded; null if unknown
    .add("throttled_s_lower", "double")  # bounds of the time during which any client waits,
    .add("throttled_s_upper", "double")  # likewise
    .add("charged", "double")  # this and the other columns: by the requests as recorded
    .add("charges", "long")
    .add("violations", "long")
    .add("first_ms", "long")  # first and last throttle within the hour, null for none
    .add("last_ms", "long")
    .add("given_up", "long")  # requests that waited longer than the client's timeout
)
