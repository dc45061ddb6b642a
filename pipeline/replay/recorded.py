"""Sum up the throttle times that Weir recorded, for comparison with replays under candidate quota files."""

from __future__ import annotations

from typing import Final

import polars as pl

from weir.pipeline.replay.charges import OWNER
from weir.quotas.replay_hours import HOUR_MS

WAITS_PER_RECORD: Final = 100
"""Maximum number of throttle times, one after the other, into which the recorded throttle time of one usage
record is split.
"""
WAIT_MS_MAX: Final = 2**31 - 1
"""Maximum throttle time (ms): the protocol's field has 32 bits."""
BUDGET: Final = ("budget", "cluster", "broker", "start_ms")
"""Columns that identify an hour of a budget."""


def hour(when_ms: pl.Expr) -> pl.Expr:
    """Return the time (ms) at which the hour of a time begins."""
    return when_ms - when_ms % HOUR_MS


def counted(uses: pl.DataFrame) -> pl.DataFrame:
    """Return the recorded sums of uses by hour and budget."""
    from_ms = pl.col("time_ms") + pl.col("service_ms")
    violated = from_ms.filter(pl.col("violated") > 0)
    return uses.group_by(*BUDGET[:3], start_ms=hour(from_ms)).agg(
        charged=pl.col("value").sum(),
        charges=pl.col("requests").sum(),
        violations=pl.col("violated").sum(),
        throttle_ms=pl.col("told_ms").sum(),
        first_ms=violated.min(),
        last_ms=violated.max(),
    )


def waits(uses: pl.DataFrame) -> pl.DataFrame:
    """Return the recorded throttle times: `OWNER`, `from_ms` and `until_ms`.

    A usage record has only the sum and number of its throttle times; the function assumes that they are
    equally long and evenly spread over the record's interval.
    """
    wait_ms = (pl.col("told_ms") / pl.col("violated")).ceil().clip(upper_bound=WAIT_MS_MAX).cast(pl.Int64)
    count = pl.col("violated").clip(upper_bound=WAITS_PER_RECORD)
    each = uses.filter((pl.col("told_ms") > 0) & (pl.col("violated") > 0)).select(
        *OWNER,
        "interval_ms",
        from_ms=pl.col("time_ms") + pl.col("service_ms"),
        wait_ms=wait_ms,
        count=count,
        one=pl.int_ranges(0, count),
    )
    part = ((pl.col("one") + 0.5) * pl.col("interval_ms") / pl.col("count")).floor().cast(pl.Int64)
    spread = each.explode("one").with_columns(from_ms=pl.col("from_ms") + part)
    return spread.select(*OWNER, "from_ms", until_ms=pl.col("from_ms") + pl.col("wait_ms"))


def throttled(waits: pl.DataFrame, before: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the time `throttled_ms` of each hour in which at least one client of a budget waited, and the
    latest end of the waits, which is `before` for later waits.
    """
    all_waits = waits if before is None else pl.concat([before, waits])
    found = all_waits.sort(*OWNER, "from_ms", "until_ms").with_columns(
        begin=pl.max_horizontal("from_ms", pl.col("until_ms").cum_max().shift(1).over(OWNER).fill_null(0))
    )
    ends = found.group_by(OWNER).agg(from_ms=pl.lit(0, pl.Int64), until_ms=pl.col("until_ms").max())
    spans = found.filter((pl.col("from_ms") > 0) & (pl.col("until_ms") > pl.col("begin")))
    hours = pl.int_ranges(hour(pl.col("begin")), pl.col("until_ms"), HOUR_MS)
    of_hours = spans.with_columns(start_ms=hours).explode("start_ms")
    end = pl.min_horizontal("until_ms", pl.col("start_ms") + HOUR_MS)
    part = end - pl.max_horizontal("begin", "start_ms")
    return of_hours.group_by(BUDGET).agg(throttled_ms=part.sum()), ends
