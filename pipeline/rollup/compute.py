"""Compute the roll-up in Spark's tasks, with polars.

A task before the shuffle sums up its usage records to windows, by entity of each level and broker, and packs
them into buckets. Spark shuffles the buckets, a few large binary values instead of many rows. A task after
the shuffle sums up the windows of its buckets to hours and days.

- A window is as long as the window of a broker's quota, so that its rate is comparable to a quota. A record
  counts in the window in which its interval began.
- One entity with most records is no bottleneck: before the shuffle, its records are in many tasks; after the
  shuffle, it has at most 8,640 windows per day and broker.
- Throttle times and violations are in a table of their own, because most windows have none. Texts are grouped
  as categories (numbers).
- Percentiles are exact: the values of all periods are sorted at once, and looked up at the ranks on both
  sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from weir.pipeline import arrow
from weir.pipeline.lake import filled
from weir.pipeline.rollup import columns
from weir.pipeline.tables import CLIENT

_BUCKET: Final = StructType().add("bucket", "long").add("table", "long").add("rows", "binary")
"""A part of a table of windows; `table` is an index into `_TABLES`."""
_RECORDS_AT_ONCE: Final = 500_000
"""Number of usage records that a task sums up at once."""
_BY_QUOTA: Final = (*columns.THROTTLES, *columns.VIOLATIONS)
_TEXTS: Final = ("cluster", "user", "client_id")
_OWNER: Final = (*columns.ENTITY, "broker")
_WINDOW: Final = (*_OWNER, "window_ms")
"""Columns that identify a window of an entity at a broker. `level` is an index into `LEVELS`; the name that
the level lacks is "".
"""
_HASHES: Final = ("user_hash", "client_id_hash")
"""Hashes of names, below 2**62. Spark computes them: polars of another release, or for another processor, has
another hash, and would put the same entity into another bucket.
"""
_PAIR: Final = (*(name for name in _WINDOW if name != "level"), *_HASHES)
_TABLES: Final = (columns.AMOUNTS, _BY_QUOTA)
"""Sums of the two tables of windows: of every window, and of windows in which one of them is above 0."""


def rolled(usage: DataFrame, window_s: int, days: int, buckets: int) -> DataFrame:
    """Return the rows of `columns.ROLLUP` for usage records of this number of whole days (of a cluster), each
    day divided into this number of `buckets`.

    There is about one task per bucket after the shuffle, so that a task writes files of few days.
    """
    packed = _needed(usage, window_s * 1000).mapInArrow(partial(_packed, buckets=buckets), _BUCKET)
    shuffled = packed.repartition(days * buckets, "bucket")
    return shuffled.mapInArrow(partial(_unpacked, window_s=window_s), columns.ROLLUP)


def _needed(usage: DataFrame, window_ms: int) -> DataFrame:
    """Return the columns of usage records that windows need, without nulls except `by_quota`: an array of
    the columns `_BY_QUOTA`, null if all are 0, as in most records.
    """
    by_quota = [filled(name) for name in _BY_QUOTA]
    return usage.select(
        *(filled(name, "").alias(name) for name in _TEXTS),
        *(
            fn.shiftrightunsigned(fn.xxhash64(filled("cluster", ""), filled(name, "")), 2).alias(
                f"{name}_hash"
            )
            for name in CLIENT
        ),
        filled("broker", columns.ANY_BROKER).alias("broker"),
        (fn.col("time_ms") - fn.pmod("time_ms", fn.lit(window_ms))).alias("window_ms"),
        *(filled(name).alias(name) for name in columns.TOTALS),
        *(
            fn.when(fn.col("api") == group.value, filled("charged_bytes")).otherwise(0).alias(name)
            for name, group in columns.CHARGED.items()
        ),
        fn.when(fn.greatest(*by_quota) > 0, fn.array(*by_quota)).alias("by_quota"),
    )


def _packed(batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield buckets of windows from batches of usage records (columns: `_needed`). The number of a bucket is
    that of the day since 1970, times `buckets`, plus a hash of the names, plus the broker.
    """
    day = pl.col("window_ms") // (columns.DAY_S * 1000)
    names = pl.col(_HASHES[0]).xor(pl.col(_HASHES[1])) % buckets
    within = (names + pl.col("broker") - columns.ANY_BROKER) % buckets
    for records in arrow.frames(batches, _RECORDS_AT_ONCE):
        for index, rows in enumerate(windows(records)):
            keyed = rows.with_columns(bucket=day * buckets + within, table=pl.lit(index, pl.Int64))
            yield from arrow.packed(keyed.drop(_HASHES), ["bucket", "table"])


def _unpacked(batches: Iterator[pa.RecordBatch], window_s: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `columns.ROLLUP` from buckets that contain whole days of entities at brokers."""
    amounts, by_quota = parts = list[pl.DataFrame](), list[pl.DataFrame]()
    for batch in batches:
        for index, rows in zip(batch.column("table").to_pylist(), batch.column("rows"), strict=True):
            parts[index].append(arrow.unpacked(rows))
    if not amounts:
        return
    none = amounts[0].clear().select(_WINDOW)
    by_quota.append(none.with_columns(pl.lit(0, pl.Int64).alias(name) for name in _BY_QUOTA))
    whole = merged(*parts)
    del amounts, by_quota, parts
    for rows in _periods(whole, window_s):
        yield from arrow.batches(rows, columns.ROLLUP)


def windows(records: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
    """Return the tables of windows of all levels (columns `_WINDOW`, `_HASHES`, and those in `_TABLES`), from
    the columns of `_needed`. Mutations are counted at `ANY_BROKER`, and so are throttle times that they
    caused.
    """
    by_quota = (pl.col("by_quota").list.get(index).alias(name) for index, name in enumerate(_BY_QUOTA))
    throttled = records.filter(pl.col("by_quota").is_not_null()).select(*_PAIR, *by_quota)
    amounts, limited = (
        _mutations_apart(_summed(rows, _PAIR, sums), sums)
        for rows, sums in zip((records, throttled), _TABLES, strict=True)
    )
    # Mutations may all have been refused: such a window has amounts, too.
    refused = limited.filter(pl.col("broker") == columns.ANY_BROKER)
    amounts = pl.concat([amounts, refused.select(*_PAIR, *_zeros(amounts, columns.AMOUNTS))])
    return _by_level(amounts, columns.AMOUNTS), _by_level(limited, _BY_QUOTA)


def _by_level(pairs: pl.DataFrame, sums: Sequence[str]) -> pl.DataFrame:
    """Return windows of all levels, from those of pairs. A window may occur twice: `merged` sums up later."""
    found = []
    for index, level in enumerate(columns.LEVELS):
        of_level = pairs
        if (absent := {"user": "client_id", "client-id": "user"}.get(level)) is not None:
            keys = [name for name in _PAIR if name not in (absent, f"{absent}_hash")]
            of_level = _summed(pairs, keys, sums).with_columns(
                pl.lit("").alias(absent), pl.lit(0, pl.Int64).alias(f"{absent}_hash")
            )
        texts = pl.col(_TEXTS).cast(pl.String)  # a category has another number in another task
        found.append(
            of_level.with_columns(texts, level=pl.lit(index, pl.Int8)).select(*_WINDOW, *_HASHES, *sums)
        )
    return pl.concat(found)


def merged(*parts: Sequence[pl.DataFrame]) -> tuple[pl.DataFrame, ...]:
    """Return the tables of windows from parts of each: each window occurs once."""
    return tuple(_summed(pl.concat(rows), _WINDOW, sums) for rows, sums in zip(parts, _TABLES, strict=True))


def _summed(rows: pl.DataFrame, keys: Sequence[str], sums: Sequence[str]) -> pl.DataFrame:
    numbered = rows.lazy().with_columns(pl.col(_TEXTS).cast(pl.Categorical))
    return numbered.group_by(*keys).agg(pl.col(sums).sum()).collect(engine="streaming")


def _mutations_apart(pairs: pl.DataFrame, sums: Sequence[str]) -> pl.DataFrame:
    """Move the sums of mutations, and of their throttles, to rows of their own at `ANY_BROKER`."""
    moved = [name for name in sums if "mutation" in name]
    at_any_broker = pl.lit(columns.ANY_BROKER, pairs.schema["broker"]).alias("broker")
    with_mutations = pairs.filter(pl.any_horizontal(pl.col(moved) > 0))
    apart = with_mutations.with_columns(
        at_any_broker, *_zeros(pairs, [name for name in sums if name not in moved])
    )
    return pl.concat([pairs.with_columns(_zeros(pairs, moved)), apart])


def _zeros(rows: pl.DataFrame, names: Sequence[str]) -> list[pl.Expr]:
    return [pl.lit(0, rows.schema[name]).alias(name) for name in names]


def _periods(whole: Sequence[pl.DataFrame], window_s: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of `columns.ROLLUP` for hours, then for days. `whole` has all windows of an entity at a
    broker on a day, each once and `window_s` (s) long.
    """
    owners = whole[0].select(_OWNER).unique().with_row_index("owner").cast({"owner": pl.Int64})
    amounts, by_quota = (
        rows.join(owners, on=_OWNER).select("owner", "window_ms", *sums)
        for rows, sums in zip(whole, _TABLES, strict=True)
    )
    named = owners.with_columns(pl.col(_TEXTS).cast(pl.String))
    for seconds in columns.PERIODS.values():
        yield _shaped(_rows(amounts, by_quota, seconds, window_s), named, seconds, window_s)


def _rows(amounts: pl.DataFrame, by_quota: pl.DataFrame, seconds: int, window_s: int) -> pl.DataFrame:
    """Return one row per owner and period of `seconds`: `owner`, `start_ms`, `AMOUNTS`, `_BY_QUOTA`,
    `active_s`, `throttled_s.QUOTA`, and `RATE.p50`, … per rate, null without use.
    """
    length_ms = seconds * 1000
    number = pl.col("window_ms") // length_ms
    first, count = amounts.select(number.min(), count=number.max() - number.min() + 1).row(0)
    period = pl.col("owner") * count + (number - first)
    within, throttled = (rows.with_columns(period=period) for rows in (amounts, by_quota))
    active_s = (pl.len() * float(window_s)).alias("active_s")
    throttled_s = (
        ((pl.col(name) > 0).sum() * float(window_s)).alias(f"throttled_s.{quota}")
        for quota, name in zip(columns.QUOTAS, columns.THROTTLES, strict=True)
    )
    sums = pl.col(columns.AMOUNTS).sum(), active_s
    rows = within.lazy().group_by("period").agg(*sums).collect(engine="streaming")
    parts = [throttled.group_by("period").agg(pl.col(_BY_QUOTA).sum(), *throttled_s)]
    parts += [_spread(within, name, rate, window_s) for name, rate in columns.RATES.items()]
    for part in parts:
        rows = rows.join(part, on="period", how="left")
    return rows.with_columns(
        owner=pl.col("period") // count, start_ms=(pl.col("period") % count + first) * length_ms
    )


def _spread(windows: pl.DataFrame, name: str, rate: columns.RateColumn, window_s: int) -> pl.DataFrame:
    """Return the percentiles and the maximum of a rate by `period`, over the windows in which it is above
    0.
    """
    values = windows.select("period", value=rate.amount)
    above = values.filter(pl.col("value") > 0).sort("period", "value")
    counts = above.group_by("period", maintain_order=True).agg(pl.len().cast(pl.Int64).alias("count"))
    begin, last = counts["count"].cum_sum() - counts["count"], counts["count"] - 1
    ordered, unit = above["value"], rate.unit / window_s

    def at(share: float) -> pl.Series:
        rank = last * share
        low = ordered.gather(begin + rank.floor().cast(pl.Int64))
        high = ordered.gather(begin + rank.ceil().cast(pl.Int64))
        return (low + (high - low) * (rank - rank.floor())) * unit

    return counts.select(
        "period", *(at(share).alias(f"{name}.{each}") for each, share in columns.SHARES.items())
    )


def _shaped(rows: pl.DataFrame, owners: pl.DataFrame, seconds: int, window_s: int) -> pl.DataFrame:
    """Return the columns of `ROLLUP`."""
    named = rows.join(owners, on="owner")
    level = pl.col("level")
    shaped = {
        "seconds": pl.lit(seconds, pl.Int64),
        "day": pl.from_epoch("start_ms", time_unit="ms").dt.date(),
        "level": level.replace_strict(dict(enumerate(columns.LEVELS)), return_dtype=pl.String),
        "user": pl.when(level != columns.LEVELS.index("client-id")).then("user"),
        "client_id": pl.when(level != columns.LEVELS.index("user")).then("client_id"),
        "window_s": pl.lit(window_s, pl.Int64),
        **{name: _rate(name, rate) for name, rate in columns.RATES.items()},
        **{name: _by_quota(name) for name in ("throttle_ms", "violations", "throttled_s")},
    }
    return named.select(shaped.get(name, pl.col(name)).alias(name) for name in columns.ROLLUP.names)


def _rate(name: str, rate: columns.RateColumn) -> pl.Expr:
    spread = (pl.col(f"{name}.{share}").alias(share) for share in columns.SHARES)
    return pl.when(pl.col(rate.amount) > 0).then(pl.struct(*spread))


def _by_quota(name: str) -> pl.Expr:
    fields = [pl.col(f"{name}.{quota}").alias(quota) for quota in columns.QUOTAS]
    return pl.when(pl.any_horizontal(field > 0 for field in fields)).then(pl.struct(fields))
