"""The roll-up without Spark, for comparison: `python -m bench.pipeline.plain ENGINE USAGE RESULT`.

ENGINE is polars or duckdb; both run in one process. The input and the columns are those of the Spark job. The
result is one ordinary Parquet file for the hours and one for the days.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.pipeline.generator import QUOTAS

THREADS: Final = "POLARS_MAX_THREADS"
"""Environment variable with the number of threads, of DuckDB, too."""
WINDOW_MS: Final = 10_000
PERIODS: Final = {"hour": 3600, "day": 86_400}
ENTITY: Final = ("cluster", "level", "user", "client_id")
LEVELS: Final = {"user-client-id": "", "user": "client_id", "client-id": "user"}
"""The levels of entities, and the name that each of them lacks."""
TOTALS: Final = (
    *("requests", "bytes_in", "bytes_out", "produced_bytes", "fetched_bytes", "request_time_us"),
    *("mutations", "errors"),
)
THROTTLES: Final = tuple(f"throttle_ms.{quota}" for quota in QUOTAS)
VIOLATIONS: Final = tuple(f"violations.{quota}" for quota in QUOTAS)
SUMS: Final = (*TOTALS, *THROTTLES, *VIOLATIONS)
MUTATIONS: Final = tuple(
    name for name in SUMS if name == "mutations" or name.endswith("controller_mutation_rate")
)
"""Columns that count at broker -1, because mutations are limited in the whole cluster."""
RATES: Final = {
    "producer_byte_rate": ("produced_bytes", 1.0),
    "consumer_byte_rate": ("fetched_bytes", 1.0),
    "request_percentage": ("request_time_us", 1e-4),
    "controller_mutation_rate": ("mutations", 1.0),
}
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
WINDOW_S: Final = WINDOW_MS // 1000
_PAIR: Final = ("cluster", "user", "client_id", "broker", "window")


def with_polars(usage: Path, result: Path) -> None:
    """Roll up with polars, lazily and streaming. The environment variable POLARS_MAX_THREADS sets the number
    of threads.
    """
    import polars as pl

    def value(name: str) -> pl.Expr:
        of, _, field = name.partition(".")
        return (pl.col(of).struct.field(field) if field else pl.col(of)).alias(name)

    def charged(api: str) -> pl.Expr:
        return pl.when(pl.col("api") == api).then("charged_bytes").otherwise(0)

    def zeros(*names: str) -> dict[str, pl.Expr]:
        return {name: pl.lit(0.0 if name == "request_time_us" else 0) for name in names}

    def spread(rate: str, amount: str, unit: float) -> list[pl.Expr]:
        per_s = (pl.col(amount) * (unit / WINDOW_S)).filter(pl.col(amount) > 0)
        shares = {name: per_s.quantile(at, "linear") for name, at in SHARES.items()}
        return [e.alias(f"{rate}.{name}") for name, e in {**shares, "max": per_s.max()}.items()]

    rows = pl.scan_parquet(usage / "**/*.parquet", hive_partitioning=True).select(
        *("cluster", "user", "client_id", "broker"),
        window=pl.col("time_ms") // WINDOW_MS * WINDOW_MS,
        produced_bytes=charged("produce"),
        fetched_bytes=charged("fetch"),
        **{name: value(name) for name in SUMS if name not in {"produced_bytes", "fetched_bytes"}},
    )
    pairs = rows.group_by(_PAIR).agg(pl.col(SUMS).sum())
    others = [name for name in SUMS if name not in MUTATIONS]
    mutations = pairs.filter(pl.any_horizontal(pl.col(MUTATIONS) > 0))
    apart = mutations.with_columns(broker=pl.lit(-1, pl.Int64), **zeros(*others))
    pairs = pl.concat([pairs.with_columns(**zeros(*MUTATIONS)), apart], how="vertical_relaxed")
    levels = []
    for level, absent in LEVELS.items():
        of_level = pairs.with_columns(
            level=pl.lit(level), **({absent: pl.lit(None, pl.String)} if absent else {})
        )
        levels.append(of_level.group_by(*ENTITY, "broker", "window").agg(pl.col(SUMS).sum()))
    windows = pl.concat(levels).collect(engine="streaming").lazy()
    for period, seconds in PERIODS.items():
        start = (pl.col("window") // (seconds * 1000) * (seconds * 1000)).alias("start_ms")
        done = windows.group_by(*ENTITY, "broker", start).agg(
            pl.col(SUMS).sum(),
            (pl.len() * float(WINDOW_S)).alias("active_s"),
            *(
                (pl.col(name) > 0).sum().mul(float(WINDOW_S)).alias(f"throttled_s.{name.partition('.')[2]}")
                for name in THROTTLES
            ),
            *(e for rate, (amount, unit) in RATES.items() for e in spread(rate, amount, unit)),
        )
        done.collect(engine="streaming").write_parquet(result / f"{period}.parquet")


def with_duckdb(usage: Path, result: Path) -> None:
    """Roll up with DuckDB, which moves rows beyond its memory limit to files in `result`."""
    import duckdb

    amounts = {name: name for name in SUMS}
    amounts["produced_bytes"] = "if(api = 'produce', charged_bytes, 0)"
    amounts["fetched_bytes"] = "if(api = 'fetch', charged_bytes, 0)"
    columns = dict(zip(SUMS, map(_quoted, SUMS), strict=True))
    others = columns | dict.fromkeys(MUTATIONS, "0")
    mutations = {name: _quoted(name) if name in MUTATIONS else "0" for name in SUMS}
    changed = " OR ".join(f"{_quoted(name)} > 0" for name in MUTATIONS)
    level = (
        "CASE GROUPING(user, client_id) WHEN 0 THEN 'user-client-id' WHEN 1 THEN 'user' ELSE 'client-id' END"
    )
    sets = ", ".join(f"(cluster, broker, at_ms, {kept})" for kept in ("user, client_id", "user", "client_id"))
    database = duckdb.connect(config={"threads": os.environ[THREADS], "temp_directory": str(result)})
    database.execute(f"""
        CREATE TEMP TABLE windows AS WITH
        pairs AS (
            SELECT cluster, user, client_id, broker,
                time_ms // {WINDOW_MS} * {WINDOW_MS} AS at_ms, {_sums(amounts)}
            FROM read_parquet('{usage}/**/*.parquet', hive_partitioning = true) GROUP BY ALL),
        parts AS (
            SELECT cluster, user, client_id, broker, at_ms, {_named(others)} FROM pairs
            UNION ALL
            SELECT cluster, user, client_id, -1, at_ms, {_named(mutations)} FROM pairs WHERE {changed})
        SELECT cluster, {level} AS level, user, client_id, broker, at_ms, {_sums(columns)}
        FROM parts GROUP BY GROUPING SETS ({sets})""")  # noqa: S608  # names of this module
    found = dict.fromkeys(["active_s"], f"count(*) * {WINDOW_S}.0")
    for name in THROTTLES:
        quota = name.partition(".")[2]
        found[f"throttled_s.{quota}"] = f"count_if({_quoted(name)} > 0) * {WINDOW_S}.0"
    for rate, (amount, unit) in RATES.items():
        of = f"FILTER (WHERE {amount} > 0) * {unit / WINDOW_S}"
        found |= {f"{rate}.{name}": f"quantile_cont({amount}, {at}) {of}" for name, at in SHARES.items()}
        found[f"{rate}.max"] = f"max({amount}) {of}"
    for period, seconds in PERIODS.items():
        start = f"at_ms // {seconds * 1000} * {seconds * 1000} AS start_ms"
        database.execute(f"""
            COPY (
                SELECT {", ".join(ENTITY)}, broker, {start}, {_sums(columns)}, {_named(found)}
                FROM windows GROUP BY ALL)
            TO '{result}/{period}.parquet' (FORMAT parquet)""")  # noqa: S608  # names of this module


def _quoted(name: str) -> str:
    return f'"{name}"'


def _named(values: Mapping[str, str]) -> str:
    return ", ".join(f'{value} AS "{name}"' for name, value in values.items())


def _sums(amounts: Mapping[str, str]) -> str:
    """Return SQL of sums as 64-bit numbers, because DuckDB's sums of integers have 128 bits."""
    kinds = {name: "DOUBLE" if name == "request_time_us" else "BIGINT" for name in amounts}
    return _named({name: f"sum({amount})::{kinds[name]}" for name, amount in amounts.items()})


ENGINES: Final = {"polars": with_polars, "duckdb": with_duckdb}


def main() -> None:
    """Run one engine; print its time (s) and its peak memory (MB) as JSON."""
    engine, usage, result = sys.argv[1:]
    began_s = time.monotonic()
    ENGINES[engine](Path(usage), Path(result))
    seconds = time.monotonic() - began_s
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"seconds": seconds, "rss_mb": most_mb}))


if __name__ == "__main__":
    main()
