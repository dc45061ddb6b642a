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
ENTITY: Final = ("level", "user", "client_id")
LEVELS: Final = ("user-client-id", "user", "client-id")
TOTALS: Final = (
    *("requests", "bytes_in", "bytes_out", "produced_bytes", "fetched_bytes", "request_time_us"),
    *("mutations", "errors"),
)
THROTTLES: Final = tuple(f"throttle_ms.{quota}" for quota in QUOTAS)
VIOLATIONS: Final = tuple(f"violations.{quota}" for quota in QUOTAS)
SUMS: Final = (*TOTALS, *THROTTLES, *VIOLATIONS)
RATES: Final = {
    "producer_byte_rate": ("produced_bytes", 1.0),
    "consumer_byte_rate": ("fetched_bytes", 1.0),
    "request_percentage": ("request_time_us", 1e-4),
}
MUTATIONS: Final = "controller_mutation_rate"
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
WINDOW_S: Final = WINDOW_MS // 1000


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

    def spread(rate: str, amount: str, unit: float) -> list[pl.Expr]:
        per_s = (pl.col(amount) * (unit / WINDOW_S)).filter(pl.col(amount) > 0)
        shares = {name: per_s.quantile(at, "linear") for name, at in SHARES.items()}
        return [
            e.fill_null(0.0).alias(f"{rate}.{name}") for name, e in {**shares, "max": per_s.max()}.items()
        ]

    rows = pl.scan_parquet(usage / "**/*.parquet", hive_partitioning=True).select(
        *("user", "client_id", "broker", "sessions"),
        window=pl.col("time_ms") // WINDOW_MS * WINDOW_MS,
        produced_bytes=charged("produce"),
        fetched_bytes=charged("fetch"),
        **{name: value(name) for name in SUMS if name not in {"produced_bytes", "fetched_bytes"}},
    )
    pairs = rows.group_by("user", "client_id", "broker", "window").agg(
        pl.col(SUMS).sum(), pl.col("sessions").max()
    )
    levels = []
    nobody = pl.lit(None, pl.String)
    for level, absent in zip(LEVELS, ({}, {"client_id": nobody}, {"user": nobody}), strict=True):
        of_level = pairs.with_columns(level=pl.lit(level), **absent)
        levels.append(of_level.group_by(*ENTITY, "broker", "window").agg(pl.col(*SUMS, "sessions").sum()))
    windows = pl.concat(levels).collect(engine="streaming").lazy()
    for period, seconds in PERIODS.items():
        keys = (*ENTITY, "start_ms")
        within = windows.with_columns(start_ms=pl.col("window") // (seconds * 1000) * (seconds * 1000))
        anywhere = within.group_by(*keys, "window").agg(pl.col(SUMS).sum(), pl.col("sessions").max())
        whole = anywhere.group_by(keys).agg(
            pl.col(SUMS).sum(),
            pl.col("sessions").max().alias("sessions_max"),
            (pl.len() * float(WINDOW_S)).alias("active_s"),
            *(
                (pl.col(name) > 0).sum().mul(float(WINDOW_S)).alias(f"throttled_s.{name.partition('.')[2]}")
                for name in THROTTLES
            ),
            *spread(MUTATIONS, "mutations", 1.0),
        )
        rates = within.group_by(keys).agg(e for rate, amount in RATES.items() for e in spread(rate, *amount))
        at_each = within.group_by(*keys, "broker").agg(
            (pl.col("bytes_in") + pl.col("bytes_out")).sum().alias("bytes"),
            pl.col("requests", *(amount for amount, _unit in RATES.values())).sum(),
        )
        order = [pl.col("bytes"), pl.col("requests"), -pl.col("broker")]
        brokers = at_each.group_by(keys).agg(
            pl.len().cast(pl.Int64).alias("brokers"),
            pl.col("broker").sort_by(order).last().alias("busiest_broker"),
            (pl.col("bytes").max() / pl.col("bytes").mean()).alias("skew"),
            *(
                pl.col(amount).sort_by(order).last().mul(unit / seconds).alias(f"{rate}.mean")
                for rate, (amount, unit) in RATES.items()
            ),
        )
        joined = whole.join(rates, on=keys, nulls_equal=True).join(brokers, on=keys, nulls_equal=True)
        done = joined.with_columns((pl.col("mutations") / seconds).alias(f"{MUTATIONS}.mean"))
        done.collect(engine="streaming").write_parquet(result / f"{period}.parquet")


def with_pandas(usage: Path, result: Path) -> None:
    """Roll up with pandas, in memory. Reads only the columns that are needed."""
    import pandas as pd
    import pyarrow.dataset as ds

    table = ds.dataset(usage, format="parquet").to_table(
        columns={
            **{
                name: ds.field(name) for name in ("user", "client_id", "broker", "sessions", "api", "time_ms")
            },
            "charged_bytes": ds.field("charged_bytes"),
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
    how = {**dict.fromkeys(SUMS, "sum"), "sessions": "max"}
    pairs = _grouped(rows, ["user", "client_id", "broker", "window"]).agg(how).reset_index()
    del rows
    summed = {**dict.fromkeys(SUMS, "sum"), "sessions": "sum"}
    levels = []
    for level, kept in zip(LEVELS, (["user", "client_id"], ["user"], ["client_id"]), strict=True):
        of_level = _grouped(pairs, [*kept, "broker", "window"]).agg(summed).reset_index()
        levels.append(of_level.astype(dict.fromkeys(kept, "str")).assign(level=level))
    windows = pd.concat(levels, ignore_index=True)
    windows[["user", "client_id"]] = windows[["user", "client_id"]].fillna("").astype("category")
    for period, seconds in PERIODS.items():
        keys = [*ENTITY, "start_ms"]
        within = windows.assign(start_ms=windows["window"] // (seconds * 1000) * (seconds * 1000))
        anywhere = _grouped(within, [*keys, "window"]).agg(how).reset_index()
        for name in THROTTLES:
            anywhere[f"throttled_s.{name.partition('.')[2]}"] = (anywhere[name] > 0) * float(WINDOW_S)
        grouped = _grouped(anywhere, keys)
        flags = [name for name in anywhere if str(name).startswith("throttled_s.")]
        parts = [grouped[[*SUMS, *flags]].sum(), grouped["sessions"].max().rename("sessions_max")]
        parts.append((grouped.size() * float(WINDOW_S)).rename("active_s"))
        parts += _spread(_above(anywhere, keys, "mutations"), MUTATIONS, 1.0)
        for rate, (amount, unit) in RATES.items():
            parts += _spread(_above(within, keys, amount), rate, unit)
        within["bytes"] = within["bytes_in"] + within["bytes_out"]
        amounts = ["bytes", "requests", *(amount for amount, _unit in RATES.values())]
        at_each = _grouped(within, [*keys, "broker"])[amounts].sum().reset_index()
        at_each = at_each.sort_values(["bytes", "requests", "broker"], ascending=[True, True, False])
        each = _grouped(at_each, keys)
        busiest = each.tail(1).set_index(keys)
        parts += [each.size().rename("brokers"), busiest["broker"].rename("busiest_broker")]
        parts.append((busiest["bytes"] / each["bytes"].mean()).rename("skew"))
        parts += [(busiest[a] * (unit / seconds)).rename(f"{rate}.mean") for rate, (a, unit) in RATES.items()]
        done = pd.concat(parts, axis=1)
        done[f"{MUTATIONS}.mean"] = done["mutations"] / seconds
        done = done.reset_index().astype({"user": "str", "client_id": "str"})
        done.loc[done["level"] == "user", "client_id"] = None
        done.loc[done["level"] == "client-id", "user"] = None
        done.to_parquet(result / f"{period}.parquet")


def _grouped(rows: pd.DataFrame, by: list[str]) -> Groups:
    return rows.groupby(by, observed=True, dropna=False, sort=False)


def _above(rows: pd.DataFrame, keys: list[str], amount: str) -> Values:
    """Return the column `amount`, grouped by the columns `keys`; values that are not above 0 are missing."""
    return _grouped(rows[keys].assign(**{amount: rows[amount].where(rows[amount] > 0)}), keys)[amount]


def _spread(values: Values, rate: str, unit: float) -> list[pd.Series]:
    per_s = unit / WINDOW_S
    found = {**{name: values.quantile(at) for name, at in SHARES.items()}, "max": values.max()}
    return [(value.fillna(0.0) * per_s).rename(f"{rate}.{name}") for name, value in found.items()]


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
