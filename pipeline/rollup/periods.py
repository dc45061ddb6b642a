"""Sum up windows into hours and days of each entity at each broker.

Texts are compared only once: the pairs of entity and broker are numbered first. Percentiles are exact: the
values of all periods are sorted at once, and looked up at the ranks on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from weir.pipeline.rollup.columns import (
    ENTITY,
    LEVELS,
    PERIODS,
    QUOTAS,
    RATES,
    ROLLUP,
    SHARES,
    SUMS,
    THROTTLES,
    Rate,
)

_OWNER: Final = (*ENTITY, "broker")


def periods(windows: pl.DataFrame, window_s: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of `columns.ROLLUP` for hours, then for days.

    `windows` (columns: `rollup.windows.WINDOW` and `SUMS`), each `window_s` (s) long, has all windows of an
    entity at a broker on a day, each once.
    """
    owners = windows.select(_OWNER).unique().with_row_index("owner")
    numbered = windows.join(owners, on=_OWNER).select(pl.col("owner").cast(pl.Int64), "window_ms", *SUMS)
    for seconds in PERIODS.values():
        yield _shaped(_rows(numbered, seconds, window_s), owners, seconds, window_s)


def _rows(numbered: pl.DataFrame, seconds: int, window_s: int) -> pl.DataFrame:
    """Return one row per owner and period of `seconds`: `owner`, `start_ms`, `SUMS`, `active_s`,
    `throttled_s.QUOTA`, and `RATE.p50`, … per rate, null without use.
    """
    length_ms = seconds * 1000
    number = pl.col("window_ms") // length_ms
    first, last = (numbered.select(number.min()).item(), numbered.select(number.max()).item())
    count = (last or 0) - (first or 0) + 1
    within = numbered.with_columns(period=pl.col("owner") * count + (number - first))
    rows = (
        within.lazy()
        .group_by("period")
        .agg(
            pl.col(SUMS).sum(),
            (pl.len() * float(window_s)).alias("active_s"),
            *(
                ((pl.col(name) > 0).sum() * float(window_s)).alias(f"throttled_s.{quota}")
                for quota, name in zip(QUOTAS, THROTTLES, strict=True)
            ),
        )
        .collect(engine="streaming")
    )
    for name, rate in RATES.items():
        spread = _spread(within.select("period", value=rate.amount), name, rate.unit / window_s)
        rows = rows.join(spread, on="period", how="left")
    return rows.with_columns(
        owner=(pl.col("period") // count).cast(pl.UInt32),
        start_ms=(pl.col("period") % count + first) * length_ms,
    )


def _spread(values: pl.DataFrame, name: str, unit: float) -> pl.DataFrame:
    """Return the percentiles and the maximum of the values above 0 by `period`, each times `unit`."""
    above = values.filter(pl.col("value") > 0).sort("period", "value")
    counts = above.group_by("period", maintain_order=True).agg(pl.len().cast(pl.Int64).alias("count"))
    begin, last = counts["count"].cum_sum() - counts["count"], counts["count"] - 1
    ordered = above["value"]

    def at(share: float) -> pl.Series:
        rank = last * share
        low = ordered.gather(begin + rank.floor().cast(pl.Int64))
        high = ordered.gather(begin + rank.ceil().cast(pl.Int64))
        return (low + (high - low) * (rank - rank.floor())) * unit

    shares = {**SHARES, "max": 1.0}
    return counts.select("period", *(at(share).alias(f"{name}.{each}") for each, share in shares.items()))


def _shaped(rows: pl.DataFrame, owners: pl.DataFrame, seconds: int, window_s: int) -> pl.DataFrame:
    """Return the columns of `ROLLUP`."""
    named = rows.join(owners, on="owner")
    level = pl.col("level")
    columns = {
        "seconds": pl.lit(seconds, pl.Int64),
        "day": pl.from_epoch("start_ms", time_unit="ms").dt.date(),
        "level": level.replace_strict(dict(enumerate(LEVELS)), return_dtype=pl.String),
        "user": pl.when(level != LEVELS.index("client-id")).then("user"),
        "client_id": pl.when(level != LEVELS.index("user")).then("client_id"),
        "window_s": pl.lit(window_s, pl.Int64),
        **{name: _rate(name, rate) for name, rate in RATES.items()},
        **{name: _by_quota(name) for name in ("throttle_ms", "violations", "throttled_s")},
    }
    return named.select(columns.get(name, pl.col(name)).alias(name) for name in ROLLUP.names)


def _rate(name: str, rate: Rate) -> pl.Expr:
    spread = (pl.col(f"{name}.{share}").alias(share) for share in (*SHARES, "max"))
    return pl.when(pl.col(rate.amount) > 0).then(pl.struct(*spread))


def _by_quota(name: str) -> pl.Expr:
    fields = [pl.col(f"{name}.{quota}") for quota in QUOTAS]
    named = (field.alias(quota) for field, quota in zip(fields, QUOTAS, strict=True))
    return pl.when(pl.any_horizontal(field > 0 for field in fields)).then(pl.struct(*named))
