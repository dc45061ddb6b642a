"""Compare the roll-ups of two engines."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from bench.pipeline.plain import ENTITY, PERIODS

_TOLERANCE: Final = 1e-9
"""Accepted relative difference of figures that are not integers, because engines add and multiply in
different orders. Integers are compared exactly.
"""


def differences(lake: Path, result: Path) -> list[str]:
    """Return descriptions of the differences between a lake's roll-ups by Spark and another engine's roll-ups
    in `result`; an empty list if both are equal. The lake has been rolled up once, so that each of its files
    belongs to the newest version of the table.
    """
    ours = pl.scan_parquet(lake / "rollup" / "**/*.parquet", hive_partitioning=True)
    return [
        f"{period}: {line}"
        for period, seconds in PERIODS.items()
        for line in _between(
            _flat(ours.filter(pl.col("seconds") == seconds)), pl.scan_parquet(result / f"{period}.parquet")
        )
    ]


def _flat(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Replace each column of structs by columns named `struct.field`."""
    for name, kind in rows.collect_schema().items():
        if isinstance(kind, pl.Struct):
            fields = (
                pl.col(name).struct.field(each.name).alias(f"{name}.{each.name}") for each in kind.fields
            )
            rows = rows.with_columns(*fields).drop(name)
    return rows


def _between(ours: pl.LazyFrame, theirs: pl.LazyFrame) -> list[str]:
    keys = [*ENTITY, "broker", "start_ms"]
    theirs = theirs.with_columns(pl.col(ENTITY).cast(pl.String), pl.col("broker").cast(pl.Int64))
    kinds = ours.collect_schema()
    ours_names, theirs_names = set(kinds.names()), set(theirs.collect_schema().names())
    names = sorted((ours_names & theirs_names) - set(keys))
    if missing := ours_names - theirs_names - {"seconds", "day", "window_s"}:
        return [f"no {', '.join(sorted(missing))}"]
    joined = ours.join(theirs, on=keys, how="full", nulls_equal=True, suffix=" of theirs").select(
        alone=(pl.col("requests").is_null() | pl.col("requests of theirs").is_null()).sum(),
        **{
            name: (~_alike(pl.col(name), pl.col(f"{name} of theirs"), exactly=kinds[name].is_integer())).sum()
            for name in names
        },
    )
    counts = joined.collect(engine="streaming").row(0, named=True)
    return [f"{name} differs in {count} rows" for name, count in counts.items() if count]


def _alike(one: pl.Expr, other: pl.Expr, *, exactly: bool) -> pl.Expr:
    """Compare two figures; null is 0."""
    one, other = one.fill_null(0), other.fill_null(0)
    tolerance = 0.0 if exactly else _TOLERANCE * pl.max_horizontal(one.abs(), other.abs())
    return (one - other).abs() <= tolerance
