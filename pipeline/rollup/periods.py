"""Sum up windows into hours or days of each entity (`tables.ROLLUP`).

The windows are already partitioned by entity, so that no further shuffle is needed.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from weir.pipeline.rollup.windows import AMOUNTS, ENTITY, SUMS, THROTTLES, VIOLATIONS
from weir.pipeline.tables import BY_QUOTA, LEVELS, ROLLUP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR_S: Final = 3600
DAY_S: Final = 86_400
PERIODS: Final = {"hour": HOUR_S, "day": DAY_S}
"""Length (s) of each kind of period."""
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_KEYS: Final = (*ENTITY, "start_ms")
_AT_BROKERS: Final = {
    "producer_byte_rate": ("produced_bytes", 1.0),
    "consumer_byte_rate": ("fetched_bytes", 1.0),
    "request_percentage": ("request_time_us", 1e-4),
}
"""For each rate that a quota limits per broker: the column of its amount, and the factor from amount/s to the
quota's unit.
"""


def periods(windows: DataFrame, seconds: int, window_s: int) -> DataFrame:
    """Return `tables.ROLLUP` for `windows` (columns: `pipeline.rollup.windows`), by periods of `seconds`. The
    windows, each `window_s` long, must cover whole periods.
    """
    start = sql.col("window_ms") - sql.pmod("window_ms", sql.lit(seconds * 1000))
    within = windows.withColumn("start_ms", start)
    # Merged, not broadcast: equal keys are in the same task already, and nothing passes through the driver.
    parts = (_whole(within), _rates(within), _brokers(within))
    joined = reduce(lambda left, right: left.join(right.hint("merge"), list(_KEYS)), parts)
    return _shaped(joined, seconds, window_s)


def _whole(within: DataFrame) -> DataFrame:
    """Return one row per entity and period with sums over all brokers: amounts, the number of windows with
    usage and of windows with throttling, and the sorted numbers of mutations per window.
    """
    anywhere = within.groupBy(*_KEYS, "window_ms").agg(
        *(sql.sum(name).alias(name) for name in SUMS), sql.max("sessions").alias("sessions")
    )
    return anywhere.groupBy(*_KEYS).agg(
        *(sql.sum(name).alias(name) for name in SUMS),
        sql.max("sessions").alias("sessions_max"),
        sql.count(sql.lit(1)).alias("windows"),
        *(sql.count_if(sql.col(name) > 0).alias(f"windows_{name}") for name in THROTTLES),
        _values("controller_mutation_rate", "mutations"),
    )


def _rates(within: DataFrame) -> DataFrame:
    """Return one row per entity and period: for each rate, the array of its amounts in all windows at all
    brokers.
    """
    return within.groupBy(*_KEYS).agg(
        *(_values(name, amount) for name, (amount, _unit) in _AT_BROKERS.items())
    )


def _values(rate: str, amount: str) -> Column:
    """Return the column `<rate>_values`: the sorted array of the amounts above 0, at most one per window and
    broker. Windows without usage do not count, because a quota must allow the rate of active windows.
    """
    above = sql.collect_list(sql.when(sql.col(amount) > 0, sql.col(amount)))
    return sql.sort_array(above).alias(f"{rate}_values")


def _brokers(within: DataFrame) -> DataFrame:
    """Return one row per entity and period: the number of brokers, the mean of their bytes, and the busiest
    broker with its amounts.
    """
    names = [amount for amount, _unit in _AT_BROKERS.values()]
    at_each = within.groupBy(*_KEYS, "broker").agg(
        sql.sum(sql.col("bytes_in") + sql.col("bytes_out")).alias("bytes"),
        *(sql.sum(name).alias(name) for name in ("requests", *names)),
    )
    order = ("bytes", "requests", (-sql.col("broker")).alias("nearness"))
    return at_each.groupBy(*_KEYS).agg(
        sql.count(sql.lit(1)).alias("brokers"),
        sql.avg("bytes").alias("bytes_mean"),
        sql.max(sql.struct(*order, *names)).alias("busiest"),
    )


def _shaped(joined: DataFrame, seconds: int, window_s: int) -> DataFrame:
    level = sql.element_at(sql.array(*map(sql.lit, LEVELS)), sql.col("level") + 1)
    columns = {
        "level": level,
        "user": sql.when(sql.col("level") != LEVELS.index("client-id"), sql.col("user")),
        "client_id": sql.when(sql.col("level") != LEVELS.index("user"), sql.col("client_id")),
        "seconds": sql.lit(seconds),
        **{name: sql.col(name) for name in ("start_ms", "sessions_max", "brokers", *AMOUNTS)},
        **{
            name: _rate(name, sql.col(f"busiest.{amount}") * (unit / seconds), unit / window_s)
            for name, (amount, unit) in _AT_BROKERS.items()
        },
        "controller_mutation_rate": _rate(
            "controller_mutation_rate", sql.col("mutations") / seconds, 1 / window_s
        ),
        "active_s": sql.col("windows") * window_s,
        "throttle_ms": _by_quota(*map(sql.col, THROTTLES)),
        "violations": _by_quota(*map(sql.col, VIOLATIONS)),
        "throttled_s": _by_quota(*(sql.col(f"windows_{name}") * window_s for name in THROTTLES)),
        "busiest_broker": -sql.col("busiest.nearness"),
        "skew": sql.when(
            sql.col("bytes_mean") > 0, sql.col("busiest.bytes") / sql.col("bytes_mean")
        ).otherwise(1),
        "day": sql.to_date(sql.timestamp_millis("start_ms")),
    }
    return joined.select(
        *(columns[field.name].cast(field.dataType).alias(field.name) for field in ROLLUP.fields)
    )


def _rate(rate: str, mean: Column, unit: float) -> Column:
    values = sql.col(f"{rate}_values")
    shares = ((_percentile(values, share) * unit).alias(name) for name, share in _SHARES.items())
    most = _value(values, sql.size(values) - 1) * unit
    return sql.struct(mean.alias("mean"), *shares, most.alias("max"))


def _percentile(values: Column, share: float) -> Column:
    """Return the column with the exact percentile (`share`, 0 to 1) of a sorted array, interpolated between
    the two nearest values; 0 for an empty array.
    """
    at = (sql.size(values) - 1) * share
    below = sql.floor(at)
    part = at - below
    return _value(values, below) * (1 - part) + _value(values, sql.ceil(at)) * part


def _value(values: Column, at: Column) -> Column:
    return sql.coalesce(sql.get(values, at.cast("int")), sql.lit(0))


def _by_quota(*columns: Column) -> Column:
    named = zip(columns, BY_QUOTA.fields, strict=True)
    return sql.struct(*(column.alias(field.name) for column, field in named))
