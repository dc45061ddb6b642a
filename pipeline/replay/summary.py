"""Summarize a replay for the operator: tables and remarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

import polars as pl
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as fn

from weir.pipeline.arrow import collected
from weir.pipeline.outcome import Listing
from weir.pipeline.replay.candidates import KEYS, RECORDED
from weir.quotas.replay_demand import RECORDED as DEMAND_RECORDED

BUDGET: Final = ("cluster", "quota", "user", "client_id", "group", "broker")


class Range(NamedTuple):
    """Lower and upper bound of a time (s). `upper_s` is None if there is no upper bound."""

    lower_s: float
    upper_s: float | None

    @classmethod
    def of_ms(cls, row: Row | Mapping[str, Any]) -> Range:
        """Return the bounds in the columns `throttle_ms_lower` and `throttle_ms_upper` of a row."""
        upper_ms = row["throttle_ms_upper"]
        return cls(row["throttle_ms_lower"] / 1000, None if upper_ms is None else upper_ms / 1000)

    def __str__(self) -> str:
        if self.upper_s is None:
            return f"{self.lower_s:.1f} to unknown"
        if self.upper_s == self.lower_s:
            return f"{self.lower_s:.1f}"
        return f"{self.lower_s:.1f} to {self.upper_s:.1f}"


class Total(NamedTuple):
    """Sums over all budgets of one quota under one candidate quota file."""

    quota: str
    candidate: str
    hours: int
    throttled: tuple[int, int]
    """Least and largest number of budgets that may be throttled at least once."""
    held_back: int
    """Number of budgets whose clients were held back in the recording."""
    violations: int | None
    """Number of requests that were throttled or refused; None if clients were held back in the recording."""
    throttle: Range
    throttled_time: Range
    given_up: int | None
    """Number of requests that their clients give up; None if clients were held back in the recording."""


def bounds(name: str) -> list[Column]:
    """Return the columns of the bounds with this name, summed up; the upper one is null if one is null."""
    lower, upper = fn.col(f"{name}_lower"), fn.col(f"{name}_upper")
    return [
        fn.coalesce(fn.sum(lower), fn.lit(0)).alias(f"{name}_lower"),
        fn.when(fn.count(upper) == fn.count("*"), fn.sum(upper)).alias(f"{name}_upper"),
    ]


def by_budget(hours: DataFrame) -> pl.DataFrame:
    """Return the sums of the hours in `tables.REPLAY` for each budget and candidate quota file."""
    found = hours.groupBy("candidate", *BUDGET).agg(
        fn.count("*").alias("hours"),
        fn.bool_or(fn.col("demand") != DEMAND_RECORDED).alias("held_back"),
        *(fn.sum(name).alias(name) for name in ("violations", "given_up")),
        *bounds("throttle_ms"),
        *bounds("throttled_s"),
    )
    return collected(found)


def totals(budgets: pl.DataFrame, names: Sequence[str]) -> list[Total]:
    """Return the totals of `by_budget`, in the order of quotas, and then of `names` (of candidates)."""

    def of(bound: str) -> pl.Expr:
        return pl.when("held_back").then(f"throttle_ms_{bound}").otherwise("violations")

    upper = (pl.col(name) for name in ("throttle_ms_upper", "throttled_s_upper"))
    found = budgets.group_by("candidate", "quota").agg(
        pl.col(
            "hours", "held_back", "violations", "given_up", "throttle_ms_lower", "throttled_s_lower"
        ).sum(),
        *(pl.when(each.is_not_null().all()).then(each.sum()) for each in upper),
        sure=(of("lower") > 0).sum(),
        possible=pl.len() - (of("upper") == 0).fill_null(value=False).sum(),
    )
    in_order = [key.value for key in KEYS]
    rows = sorted(
        found.to_dicts(), key=lambda row: (in_order.index(row["quota"]), names.index(row["candidate"]))
    )
    return [
        Total(
            row["quota"],
            row["candidate"],
            row["hours"],
            (row["sure"], row["possible"]),
            row["held_back"],
            None if row["held_back"] else row["violations"],
            Range.of_ms(row),
            Range(row["throttled_s_lower"], row["throttled_s_upper"]),
            None if row["held_back"] else row["given_up"],
        )
        for row in rows
    ]


def listed(found: Sequence[Total]) -> Listing:
    """Return the totals by quota and candidate quota file as a table for the command line to print."""
    columns = (
        *("quota", "quotas of", "throttled", "held back", "violations"),
        *("throttle times s", "throttled s", "given up"),
    )
    rows = tuple(
        (
            total.quota,
            total.candidate,
            " to ".join(str(count) for count in dict.fromkeys(total.throttled)),
            total.held_back,
            total.violations,
            str(total.throttle),
            str(total.throttled_time),
            total.given_up,
        )
        for total in found
    )
    return Listing("throttled budgets, violations and times by quota", columns, rows)


def top(budgets: pl.DataFrame, names: Sequence[str], most: int) -> Listing:
    """Return a table of the `most` budgets with the longest throttled time (s) under any candidate quota
    file, with one column per file. A time without upper bound comes before the others, unless its lower
    bound is 0: then nothing is known of the budget under this file.
    """
    without_bound = pl.when(pl.col("throttled_s_lower") > 0).then(inf).otherwise(0.0)
    longest = pl.coalesce("throttled_s_upper", without_bound).max().over(BUDGET)
    ranked = budgets.with_columns(longest=longest).filter(pl.col("longest") > 0)
    found: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in ranked.sort(-pl.col("longest"), *BUDGET).head(most * len(names)).iter_rows(named=True):
        time = Range(row["throttled_s_lower"], row["throttled_s_upper"])
        found.setdefault(tuple(row[name] for name in BUDGET), {})[row["candidate"]] = str(time)
    rows = tuple(
        (*names_of, None if broker is None else str(broker), *map(times.get, names))
        for (*names_of, broker), times in list(found.items())[:most]
    )
    return Listing(f"throttled s, the longest {most}", (*BUDGET, *names), rows)


def held_back(found: Sequence[Total], span_s: float) -> list[str]:
    """Return one line for each quota that throttled clients while their usage was recorded, so that they
    requested less than they would have. `span_s` is the length (s) of the recorded time.
    """
    return [
        f"{total.quota}: when recorded, {count} {'was' if count == 1 else 'were'}"
        f" throttled {share(total.throttled_time.lower_s, count * span_s)} of the time; their demand"
        " without throttles is unknown, so their throttles under other limits are a range"
        for total in found
        for count in total.throttled[:1]
        if total.candidate == RECORDED and total.throttled_time.lower_s > 0
    ]


def share(part: float, whole: float) -> str:
    """Return the share `part` of `whole` as text, such as `12 %`; the word `some` if `whole` is 0."""
    return f"{100 * min(part / whole, 1):.3g} %" if whole > 0 else "some"


def differences(of_traces: Sequence[Total], of_usage: Sequence[Total]) -> list[str]:
    """Return a line per candidate and quota that compares replays of the same clients from two sources."""
    trace, usage = ({(total.candidate, total.quota): total for total in f} for f in (of_traces, of_usage))
    return [
        f"{name}, {quota}: throttle times {_than(usage[name, quota].throttle, total.throttle)},"
        f" throttled time {_than(usage[name, quota].throttled_time, total.throttled_time)}"
        for (name, quota), total in trace.items()
        if (name, quota) in usage and (total.throttled[1] or usage[name, quota].throttled[1])
    ]


def _than(usage: Range, trace: Range) -> str:
    told = f"{usage} s of usage, {trace} s of traces"
    if trace.lower_s and usage.upper_s == usage.lower_s and trace.upper_s == trace.lower_s:
        return f"{told} ({100 * (usage.lower_s / trace.lower_s - 1):+.1f} %)"
    return told
