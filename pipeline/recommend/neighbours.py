"""Hours in which clients waited longer than usual for a broker, and the client above its usual use meanwhile.

The rule, by broker and hour. Records show that both happened in the same hour, not that one caused the other.

1. A client is slowed if its mean response time is at least `SLOWER` times its usual one, the median of its
   hours. Only `TIMED` requests count, and hours with at least `REQUESTS` of them, of clients with at least
   `USUAL_HOURS` such hours.
2. The excess of a client is its use (request time, or bytes) minus its usual use, as a share of all use of
   the broker in that hour. Usual is the median of all hours of the broker; without use an hour counts 0.
3. The neighbour is the client with the largest excess, if that is at least `EXCESS`, and if at least
   `CLIENTS` other clients are slowed. It is listed if it is the neighbour in at least `HOURS` hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from weir.pipeline.arrow import collected, table
from weir.pipeline.lake import Lake, filled, read
from weir.pipeline.outcome import Listing
from weir.pipeline.tables import CLIENT, USAGE
from weir.usage.groups import ApiGroup

SLOWER: Final = 2.0
CLIENTS: Final = 3
HOURS: Final = 2
EXCESS: Final = 0.2
REQUESTS: Final = 100
USUAL_HOURS: Final = 5
DAYS: Final = 7
"""Number of the latest days of usage that are looked at."""
TIMED: Final = (ApiGroup.PRODUCE, ApiGroup.METADATA)
"""API groups whose requests brokers answer at once, unlike fetches without records, and joins of groups."""

_HOUR_MS: Final = 3_600_000
_USES: Final = ("request_time_us", "bytes")
_FOUND: Final = (
    StructType([USAGE[name] for name in ("broker", *CLIENT)])
    .add("hours", "long")
    .add("slowed", "long")
    .add("times", "double")
    .add("excess", "double")
)
_COLUMNS: Final = ("broker", "user", "client_id", "hours", "others slowed", "times as slow", "excess %")
_TITLE: Final = (
    f"clients above their usual use in hours in which at least {CLIENTS} others waited at least {SLOWER:g} "
    f"times as long as usual for a broker's responses, latest {DAYS} days (no proof of a cause)"
)


def neighbours(spark: SparkSession, lake: Lake, cluster: str) -> Iterator[Listing]:
    """Yield a table of the neighbours at all brokers of a cluster, unless no client is a neighbour."""
    usage = read(spark, lake.usage, USAGE).where((fn.col("cluster") == cluster) & (fn.col("broker") >= 0))
    last, known = usage.agg(fn.max("day"), fn.max("response_time_us")).collect()[0]
    if not known:  # no broker has answered
        return
    timed = fn.col("api").isin(*TIMED)
    start = fn.col("time_ms") - fn.pmod("time_ms", fn.lit(_HOUR_MS))
    hours = (
        usage.where(fn.col("day") > fn.date_sub(fn.lit(last), DAYS))
        .groupBy("broker", *(filled(name, "").alias(name) for name in CLIENT), start.alias("start_ms"))
        .agg(
            fn.sum(fn.when(timed, filled("requests")).otherwise(0)).alias("requests"),
            fn.sum(fn.when(timed, filled("response_time_us")).otherwise(0)).alias("response_time_us"),
            fn.sum(filled("request_time_us")).alias("request_time_us"),
            fn.sum(filled("bytes_in") + filled("bytes_out")).alias("bytes"),
        )
    )
    rows = collected(hours.groupBy("broker").applyInArrow(_of_broker, _FOUND)).sort("broker", *CLIENT)
    if rows.height:
        yield Listing(_TITLE, _COLUMNS, tuple(rows.rows()))


def _of_broker(hours: pa.Table) -> pa.Table:
    broker, rows = hours["broker"][0].as_py(), found(pl.DataFrame(hours))
    rows = rows.select(pl.lit(broker, pl.Int64).alias("broker"), pl.all())
    return table(rows, _FOUND)


def found(hours: pl.DataFrame) -> pl.DataFrame:
    """Return the neighbours at one broker: `user`, `client_id`, number of `hours`; and of these hours the
    least number of other clients that were `slowed`, the median of their `times` as slow as usual, and the
    median `excess` (%).

    `hours` has a row per client and hour: `user`, `client_id`, `start_ms`, `requests` and `response_time_us`
    of the `TIMED` requests, `request_time_us`, `bytes`.
    """
    leaders = (
        _excess(hours)
        .filter(pl.col("excess") >= EXCESS)
        .sort("excess", *CLIENT, descending=[True, False, False])
    )
    leaders = leaders.unique("start_ms", keep="first", maintain_order=True)
    others = _slowed(hours).join(leaders, on="start_ms", suffix="_of_leader")
    return (
        others.filter(pl.any_horizontal(pl.col(name) != pl.col(f"{name}_of_leader") for name in CLIENT))
        .group_by("start_ms", *(pl.col(f"{name}_of_leader").alias(name) for name in CLIENT))
        .agg(pl.len().alias("slowed"), pl.col("times").median(), pl.col("excess").first())
        .filter(pl.col("slowed") >= CLIENTS)
        .group_by(CLIENT)
        .agg(
            pl.len().cast(pl.Int64).alias("hours"),
            pl.col("slowed").min().cast(pl.Int64),
            pl.col("times").median().round(1),
            (pl.col("excess") * 100).median().round(),
        )
        .filter(pl.col("hours") >= HOURS)
    )


def _slowed(hours: pl.DataFrame) -> pl.DataFrame:
    """Return the clients and hours of step 1, with `times`: the mean response time / the usual one."""
    timed = hours.filter((pl.col("requests") >= REQUESTS) & (pl.col("response_time_us") > 0))
    mean = pl.col("response_time_us") / pl.col("requests")
    timed = timed.with_columns(times=mean / mean.median().over(CLIENT), known=pl.len().over(CLIENT))
    slowed = timed.filter((pl.col("known") >= USUAL_HOURS) & (pl.col("times") >= SLOWER))
    return slowed.select(*CLIENT, "start_ms", "times")


def _excess(hours: pl.DataFrame) -> pl.DataFrame:
    """Return the `excess` (share, 0 to 1) of step 2 of all clients and hours."""
    count = hours["start_ms"].n_unique()
    padded = [
        pl.col(name).append(pl.repeat(0, count - pl.len())).median().alias(f"usual_{name}") for name in _USES
    ]
    usual = hours.group_by(CLIENT).agg(padded)
    shares = [(pl.col(use) - pl.col(f"usual_{use}")) / pl.col(use).sum().over("start_ms") for use in _USES]
    joined = hours.join(usual, on=CLIENT).with_columns(
        excess=pl.max_horizontal(*(s.fill_nan(0) for s in shares))
    )
    return joined.select(*CLIENT, "start_ms", "excess")
