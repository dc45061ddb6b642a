"""Show-back: the use of each entity, and of each group of clients, and its price."""

from __future__ import annotations

from typing import Final

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from weir.pipeline import tables
from weir.pipeline.arrow import collected
from weir.pipeline.lake import Lake, filled, read
from weir.pipeline.outcome import Listing
from weir.pipeline.report.model import Bill, GroupBill, ReportOptions
from weir.pipeline.report.names import ReportEntity
from weir.pipeline.report.prices import Prices
from weir.pipeline.rollup import reading
from weir.pipeline.rollup.columns import QUOTAS

_GB: Final = 1e9
_US_PER_H: Final = 3600e6
_LISTED: Final = 10
_FORMULA: Final = r"^[=+\-@\t\r]"
"""Pattern of names that spreadsheets would take for a formula."""


def showback(spark: SparkSession, lake: Lake, wanted: ReportOptions, prices: Prices) -> pl.DataFrame:
    """Return one row per entity of the wanted level, the dearest first, then by bytes: its names;
    `bytes_in`, `bytes_out` and `requests`; `request_time_s`, the time (s) of brokers' threads; `throttle_s`,
    the sum (s) of the throttle times that it was told; and `amount`, the price of its use.
    """
    rows = reading.rows(spark, lake, "day", cluster=wanted.cluster, days=wanted.days)
    names = [name for name in tables.CLIENT if name.replace("_", "-") in wanted.level]
    return _showback(rows.where(fn.col("level") == wanted.level), names, prices)


def showback_of_groups(
    spark: SparkSession, lake: Lake, wanted: ReportOptions, prices: Prices
) -> pl.DataFrame:
    """Return one row per group, like `showback`: `group` (its name) in place of its names. Clients in
    no group are the group "". No rows if usage records name no group.

    The groups are those of the records, which maintenance may delete before the roll-ups.
    """
    rows = read(spark, lake.usage, tables.USAGE).where(fn.col("cluster") == wanted.cluster)
    if wanted.days is not None:
        rows = rows.where(fn.col("day").between(*map(fn.lit, wanted.days)))
    used = _showback(rows.withColumn("group", filled("group", "")), ["group"], prices)
    return used.filter((pl.col("group") != "").any())


def _showback(rows: DataFrame, names: list[str], prices: Prices) -> pl.DataFrame:
    throttle_ms = sum((filled(f"throttle_ms.{quota}") for quota in QUOTAS), fn.lit(0))
    summed = {name: filled(name) for name in ("bytes_in", "bytes_out", "requests", "request_time_us")}
    sums = [fn.sum(value).alias(name) for name, value in (summed | {"throttle_ms": throttle_ms}).items()]
    found = collected(rows.groupBy(*names).agg(*sums))
    in_, out, time = pl.col("bytes_in") / _GB, pl.col("bytes_out") / _GB, pl.col("request_time_us")
    return found.select(
        *(*names, "bytes_in", "bytes_out", "requests"),
        request_time_s=time / 1e6,
        throttle_s=pl.col("throttle_ms") / 1000,
        amount=in_ * prices.in_per_gb
        + out * prices.out_per_gb
        + time / _US_PER_H * prices.request_time_per_h,
    ).sort(
        "amount",
        pl.col("bytes_in") + pl.col("bytes_out"),
        *names,
        descending=[True, True, *(False for _ in names)],
    )


def bill(used: pl.DataFrame, groups: pl.DataFrame, prices: Prices) -> Bill:
    """Return the rows of `showback` and `showback_of_groups` for the page."""
    by_entity = {
        ReportEntity(row.get("user"), row.get("client_id")): (row["request_time_s"], row["amount"])
        for row in used.iter_rows(named=True)
    }
    of_groups = tuple(GroupBill(**row) for row in groups.iter_rows(named=True))
    return Bill(prices.currency, float(used["amount"].sum()), by_entity, of_groups)


def csv(used: pl.DataFrame) -> str:
    """Return the rows of `showback` as CSV. Names that a spreadsheet would take for a formula begin with an
    apostrophe.
    """
    names = pl.col(pl.String)
    safe = pl.when(names.str.contains(_FORMULA)).then(pl.lit("'") + names).otherwise(names)
    return used.with_columns(safe.name.keep()).write_csv(float_precision=6)


def listing(used: pl.DataFrame, prices: Prices, noun: str = "entities") -> Listing:
    """Return the first rows of `showback` for the terminal, with the amount of all; `noun` is the word for
    what has a row.
    """
    shown = used.head(_LISTED).with_columns(pl.col(pl.Float64).round(2))
    all_, count = used["amount"].sum(), used.height
    title = f"the {shown.height} dearest of {count:,} {noun}; all: {all_:,.2f} {prices.currency}"
    return Listing(title, tuple(shown.columns), tuple(shown.rows()))
