"""The roll-up by polars or DuckDB, for comparison: `python -m bench.pipeline.plain ENGINE USAGE RESULT`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

import polars as pl

from weir.pipeline.rollup import columns
from weir.pipeline.rollup.columns import PERIODS, QUOTAS, RATES, SHARES

FILES: Final = "[!_]*/**/*.parquet"
"""Files of a table in its partitions, without the checkpoints of its log."""
WINDOW_S: Final = 10.0
OWNER: Final = (*columns.ENTITY, "broker")
SUMS: Final = (*columns.AMOUNTS, *columns.THROTTLES, *columns.VIOLATIONS)
MOVED: Final = [name for name in SUMS if "mutation" in name]  # to broker -1
CHARGED: Final = {
    name: f"CASE WHEN api = '{api.value}' THEN charged_bytes ELSE 0 END"
    for name, api in columns.CHARGED.items()
}
KEPT: Final = [name for name in SUMS if name not in MOVED]


def with_polars(usage: Path, result: Path) -> None:
    """Roll up lazily and streaming."""
    rows = pl.scan_parquet(usage / FILES, hive_partitioning=True)
    pairs = (
        rows.unnest("throttle_ms", "violations", separator=".")
        .with_columns(
            pl.sql_expr("time_ms - time_ms % 10000 AS at_ms"),
            *(pl.sql_expr(f"{sql} AS {name}") for name, sql in CHARGED.items()),
        )
        .group_by("cluster", "user", "client_id", "broker", "at_ms")
        .agg(pl.col(SUMS).sum())
    )
    moved = pairs.filter(pl.any_horizontal(pl.col(MOVED) > 0)).with_columns(pl.col(KEPT) * 0, broker=-1)
    pairs = pl.concat([pairs.with_columns(pl.col(MOVED) * 0), moved], how="vertical_relaxed")
    none = pl.lit(None, pl.String)
    levels = {"user-client-id": {}, "user": {"client_id": none}, "client-id": {"user": none}}
    parts = (pairs.with_columns(level=pl.lit(level), **lacks) for level, lacks in levels.items())
    whole = pl.concat(part.group_by(*OWNER, "at_ms").agg(pl.col(SUMS).sum()) for part in parts)
    windows = whole.collect(engine="streaming").lazy()
    found = [pl.col(SUMS).sum(), (pl.len() * WINDOW_S).alias("active_s")]
    found += [(pl.col(f"throttle_ms.{q}") > 0).sum().mul(WINDOW_S).alias(f"throttled_s.{q}") for q in QUOTAS]
    for rate, (amount, unit) in RATES.items():
        per_s = pl.col(amount).filter(pl.col(amount) > 0) * (unit / WINDOW_S)
        found += [per_s.quantile(at, "linear").alias(f"{rate}.{name}") for name, at in SHARES.items()]
    for seconds in PERIODS.values():
        start = pl.sql_expr(f"at_ms - at_ms % {seconds}000 AS start_ms")
        done = windows.group_by(*OWNER, start).agg(found).with_columns(seconds=seconds)
        done.collect(engine="streaming").write_parquet(result / f"{seconds}.parquet")


def with_duckdb(usage: Path, result: Path) -> None:
    """Roll up in two threads. Rows beyond DuckDB's limit of memory are moved to files in `result`."""
    import duckdb

    level = "['user-client-id', 'user', 'client-id'][GROUPING(user, client_id) + 1]"
    names = [f'"{name}"' for name in SUMS]
    sums = ", ".join(f"sum({name}) AS {name}" for name in names)
    amounts = ", ".join(f'sum({CHARGED.get(name, name)}) AS "{name}"' for name in SUMS)
    found = [f"count(*) * {WINDOW_S} AS active_s"]
    found += [f'count_if("throttle_ms.{q}" > 0) * {WINDOW_S} AS "throttled_s.{q}"' for q in QUOTAS]
    for rate, (amount, unit) in RATES.items():
        where = f"FILTER (WHERE {amount} > 0) * {unit / WINDOW_S}"
        found += [f'quantile_cont({amount}, {at}) {where} AS "{rate}.{name}"' for name, at in SHARES.items()]
    kept, moved = (", ".join(f'0 AS "{name}"' for name in zeros) for zeros in (MOVED, KEPT))
    database = duckdb.connect(config={"threads": 2, "temp_directory": str(result)})
    database.execute(f"""CREATE TEMP TABLE windows AS WITH pairs AS (
            SELECT cluster, user, client_id, broker, time_ms - time_ms % 10000 AS at_ms, {amounts}
            FROM read_parquet('{usage / FILES}') GROUP BY ALL),
        parts AS (SELECT * REPLACE ({kept}) FROM pairs UNION ALL BY NAME
            SELECT * REPLACE (-1 AS broker, {moved}) FROM pairs
            WHERE {" + ".join(f'"{name}"' for name in MOVED)} > 0)
        SELECT cluster, {level} AS level, user, client_id, broker, at_ms, {sums} FROM parts
        GROUP BY GROUPING SETS ((cluster, broker, at_ms, user, client_id),
            (cluster, broker, at_ms, user), (cluster, broker, at_ms, client_id))""")  # noqa: S608  # our names
    for seconds in PERIODS.values():
        database.execute(f"""COPY (SELECT {", ".join(OWNER)}, at_ms - at_ms % {seconds}000 AS start_ms,
            {seconds} AS seconds, {sums}, {", ".join(found)} FROM windows GROUP BY ALL)
            TO '{result}/{seconds}.parquet'""")  # noqa: S608  # our names


def differences(rollup: Path, result: Path) -> dict[str, int]:
    """Return the columns that differ from Spark's, and in how many rows. The lake has been rolled up once.
    Rates may differ by 1e-9 of their value, because engines multiply in different orders.
    """
    keys = (*OWNER, "seconds", "start_ms")
    ours = pl.scan_parquet(rollup / FILES, hive_partitioning=True).drop("day", "window_s")
    structs = [name for name, kind in ours.collect_schema().items() if isinstance(kind, pl.Struct)]
    ours = ours.unnest(*structs, separator=".")
    both = ours.join(pl.scan_parquet(result / "*.parquet"), on=keys, how="full", nulls_equal=True, suffix="'")
    wrong = []
    for name, kind in ours.drop(keys).collect_schema().items():
        one, other = pl.col(name).fill_null(0), pl.col(f"{name}'").fill_null(0)
        wrong.append(((one - other).abs() > (0 if kind.is_integer() else 1e-9) * one.abs()).sum())
    counts = both.select(wrong).collect(engine="streaming").row(0, named=True)
    return {name: count for name, count in counts.items() if count}


if __name__ == "__main__":
    began_s, (engine, *paths) = time.monotonic(), sys.argv[1:]
    {"polars": with_polars, "duckdb": with_duckdb}[engine](*map(Path, paths))
    sys.stdout.write(json.dumps({"seconds": time.monotonic() - began_s}))
