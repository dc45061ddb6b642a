"""The columns of roll-ups. To roll up a new field of usage records as a sum, add its name to `TOTALS`."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from weir.pipeline.tables import BY_QUOTA, CLUSTER, DAY, SECONDS, USAGE_RECORD
from weir.quotas.table.quota_kind import RECORDED
from weir.usage.groups import ApiGroup

HOUR_S: Final = 3600
DAY_S: Final = 86_400
PERIODS: Final = {"hour": HOUR_S, "day": DAY_S}
"""Length (s) of each kind of period."""
LEVELS: Final = ("user-client-id", "user", "client-id")
"""Levels of entities: pairs of user and client-id, users, client-ids."""
ANY_BROKER: Final = -1
"""Broker id of mutations, which Kafka limits in the whole cluster, and of records without a broker."""

TOTALS: Final = (
    "requests",
    "bytes_in",
    "bytes_out",
    "request_time_us",
    "mutations",
    "errors",
    "old_bytes",
)
"""Fields of usage records that roll-ups sum up."""
CHARGED: Final = {"produced_bytes": ApiGroup.PRODUCE, "fetched_bytes": ApiGroup.FETCH}
"""Sums of `charged_bytes` over the records of one API group."""
AMOUNTS: Final = (*TOTALS, *CHARGED)
QUOTAS: Final = tuple(BY_QUOTA.names)
THROTTLES: Final = tuple(f"throttle_ms.{quota}" for quota in QUOTAS)
VIOLATIONS: Final = tuple(f"violations.{quota}" for quota in QUOTAS)


class RateColumn(NamedTuple):
    """A rate that a quota of the same name limits."""

    amount: str
    """Name of the column that is divided by the time (s)."""
    unit: float = 1.0
    """Factor from amount/s to the quota's unit."""


RATES: Final = {key.value: RateColumn(kind.recorded, kind.recorded_unit) for key, kind in RECORDED.items()}
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
"""Percentiles of windows, as shares of 1."""

RATE: Final = StructType([StructField(name, DoubleType()) for name in SHARES])
"""A rate of one entity at one broker in one period: percentiles and maximum over the windows in which the
rate was above 0; null without use.
"""
SECONDS_BY_QUOTA: Final = StructType([StructField(quota, DoubleType()) for quota in QUOTAS])
ENTITY: Final = ("cluster", "level", "user", "client_id")
"""Columns that identify an entity of a roll-up."""

ROLLUP: Final = StructType(
    [
        CLUSTER,
        SECONDS,
        DAY,
        StructField("level", StringType()),  # one of LEVELS
        StructField("user", StringType()),  # null at level client-id
        StructField("client_id", StringType()),  # null at level user
        StructField("broker", LongType()),
        StructField("start_ms", LongType()),
        StructField("window_s", LongType()),  # length of the windows
        *(USAGE_RECORD[name] for name in TOTALS),
        *(StructField(name, LongType()) for name in CHARGED),
        *(StructField(name, RATE) for name in RATES),
        StructField("active_s", DoubleType()),  # total length of the windows with records
        StructField("throttle_ms", BY_QUOTA),  # null if all are 0; so are the next two
        StructField("violations", BY_QUOTA),
        StructField("throttled_s", SECONDS_BY_QUOTA),  # total length of the windows with throttle times
    ]
)
"""One row per entity, broker and period."""
