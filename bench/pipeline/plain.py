"""The roll-up without Spark, for comparison: `python -m bench.pipeline.plain ENGINE USAGE RESULT`.

ENGINE is polars or pandas; both run in one process. The input and the columns are those of the Spark job. The
result is one ordinary Parquet file for the hours and one for the days.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from bench.pipeline.generator import QUOTAS

if TYPE_CHECKING:
    import pandas as pd
    from pandas.core.groupby import DataFrameGroupBy, SeriesGroupBy

    Groups: TypeAlias = DataFrameGroupBy[tuple[object, ...], Literal[True]]
    Values: TypeAlias = SeriesGroupBy[float, tuple[object, ...]]

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


def with_pandas(usage: Path, result: Path) -> None:
    """Roll up with pandas, in memory. Reads only the columns that are needed."""
    import pandas as pd
    import pyarrow.dataset as ds

    table = ds.dataset(usage, format="parquet", partitioning="hive").to_table(
        columns={
            **{
                name: ds.field(name)
                for name in ("cluster", "user", "client_id", "broker", "api", "time_ms", "charged_bytes")
            },
            **{
                name: ds.field(*name.split("."))
                for name in SUMS
                if name not in {"produced_bytes", "fetched_bytes"}
            },
        }
    )
    rows: pd.DataFrame = table.to_pandas(strings_to_categorical=True)
    del table
    rows["window"] = rows.pop("time_ms") // WINDOW_MS * WINDOW_MS
    charged, api = rows.pop("charged_bytes"), rows.pop("api")
    rows["produced_bytes"] = charged.where(api == "produce", 0)
    rows["fetched_bytes"] = charged.where(api == "fetch", 0)
    pairs = _grouped(rows, [*_PAIR])[[*SUMS]].sum().reset_index()
    del rows
    others = [name for name in SUMS if name not in MUTATIONS]
    apart = pairs[(pairs[[*MUTATIONS]] > 0).any(axis=1)].assign(broker=-1, **dict.fromkeys(others, 0))
    pairs = pd.concat([pairs.assign(**dict.fromkeys(MUTATIONS, 0)), apart], ignore_index=True)
    levels = []
    for level, absent in LEVELS.items():
        kept = [name for name in _PAIR if name != absent]
        of_level = _grouped(pairs, kept)[[*SUMS]].sum().reset_index()
        texts = [name for name in ("cluster", "user", "client_id") if name != absent]
        levels.append(of_level.astype(dict.fromkeys(texts, "str")).assign(level=level))
    windows = pd.concat(levels, ignore_index=True)
    windows[["user", "client_id"]] = windows[["user", "client_id"]].fillna("").astype("category")
    for period, seconds in PERIODS.items():
        keys = [*ENTITY, "broker", "start_ms"]
        within = windows.assign(start_ms=windows["window"] // (seconds * 1000) * (seconds * 1000))
        for name in THROTTLES:
            within[f"throttled_s.{name.partition('.')[2]}"] = (within[name] > 0) * float(WINDOW_S)
        grouped = _grouped(within, keys)
        flags = [name for name in within if str(name).startswith("throttled_s.")]
        parts = [grouped[[*SUMS, *flags]].sum(), (grouped.size() * float(WINDOW_S)).rename("active_s")]
        for rate, (amount, unit) in RATES.items():
            parts += _spread(_above(within, keys, amount), rate, unit)
        done = pd.concat(parts, axis=1)
        done = done.reset_index().astype({"user": "str", "client_id": "str"})
        for level, absent in LEVELS.items():
            if absent:
                done.loc[done["level"] == level, absent] = None
        done.to_parquet(result / f"{period}.parquet")


def _grouped(rows: pd.DataFrame, by: list[str]) -> Groups:
    return rows.groupby(by, observed=True, dropna=False, sort=False)


def _above(rows: pd.DataFrame, keys: list[str], amount: str) -> Values:
    """Return the column `amount`, grouped by the columns `keys`; values that are not above 0 are missing."""
    return _grouped(rows[keys].assign(**{amount: rows[amount].where(rows[amount] > 0)}), keys)[amount]


def _spread(values: Values, rate: str, unit: float) -> list[pd.Series]:
    per_s = unit / WINDOW_S
    found = {**{name: values.quantile(at) for name, at in SHARES.items()}, "max": values.max()}
    return [(value * per_s).rename(f"{rate}.{name}") for name, value in found.items()]


ENGINES: Final = {"polars": with_polars, "pandas": with_pandas}


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
