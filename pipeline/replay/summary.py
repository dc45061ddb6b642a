"""What a replay has come to, in a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from pipeline.outcome import Listing
from pipeline.replay.candidates import KEYS, RECORDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUDGET: Final = ("quota", "user", "client_id", "broker")


class Total(NamedTuple):
    """What the budgets of one quota come to under one candidate."""

    quota: str
    candidate: str
    hours: int
    throttled: int
    """How many of the budgets."""
    violations: int
    throttle_s: float
    throttled_s: float
    given_up: int


def totals(hours: DataFrame, names: Sequence[str]) -> list[Total]:
    """By quota, and candidate in the order of `names`."""
    of_budgets = hours.groupBy("candidate", *BUDGET).agg(
        F.count("*").alias("hours"),
        F.sum("violations").alias("violations"),
        F.sum("throttle_ms").alias("throttle_ms"),
        F.sum("throttled_s").alias("throttled_s"),
        F.sum("given_up").alias("given_up"),
    )
    summed = of_budgets.groupBy("candidate", "quota").agg(
        F.sum("hours").alias("hours"),
        F.count_if(F.col("violations") > 0).alias("throttled"),
        F.sum("violations").alias("violations"),
        (F.sum("throttle_ms") / 1000).alias("throttle_s"),
        F.sum("throttled_s").alias("throttled_s"),
        F.sum("given_up").alias("given_up"),
    )
    found = [Total(**row.asDict()) for row in summed.collect()]  # candidates times quotas
    in_order = [key.value for key in KEYS]
    return sorted(found, key=lambda total: (in_order.index(total.quota), names.index(total.candidate)))


def listed(found: Sequence[Total]) -> Listing:
    """Totals for people."""
    columns = ("quota", "quotas of", "throttled", "violations", "throttle times s", "throttled s", "given up")
    rows = tuple(
        (
            total.quota,
            total.candidate,
            total.throttled,
            total.violations,
            round(total.throttle_s, 1),
            round(total.throttled_s, 1),
            total.given_up,
        )
        for total in found
    )
    return Listing("by quota: how many were throttled, how often, for how long", columns, rows)


def top(hours: DataFrame, names: Sequence[str], most: int) -> Listing:
    """Those who wait longest under any candidate, or did, side by side."""
    # Not by pivot: files may be called as a column is, or differ by case, which Spark's columns do not.
    under = [f"under_{number}" for number in range(len(names))]
    sums = (
        F.sum(F.when(F.col("candidate") == name, F.col("throttled_s"))).alias(column)
        for name, column in zip(names, under, strict=True)
    )
    wide = hours.groupBy(*BUDGET).agg(*sums)
    columns = [F.coalesce(F.col(column), F.lit(0.0)) for column in under]
    longest = columns[0] if len(columns) == 1 else F.greatest(*columns)
    ranked = wide.where(longest > 0).orderBy(longest.desc(), *BUDGET).limit(most)
    rows = tuple(
        (
            row["quota"],
            row["user"],
            row["client_id"],
            None if row["broker"] is None else str(row["broker"]),
            *(None if row[column] is None else round(row[column], 1) for column in under),
        )
        for row in ranked.collect()
    )
    title = f"throttled s, the longest {most}"
    return Listing(title, (*BUDGET, *names), rows)


def held_back(found: Sequence[Total], span_s: float) -> list[str]:
    """Where demand was held back while it was recorded, one line for each quota."""
    return [
        f"{total.quota}: when recorded, {total.throttled} were throttled"
        f" {share(total.throttled_s, total.throttled * span_s)} of the time; what they would have asked for"
        " otherwise is not known, and not replayed"
        for total in found
        if total.candidate == RECORDED and total.throttled_s > 0
    ]


def share(part: float, whole: float) -> str:
    """Such as `12 %`."""
    return f"{100 * min(part / whole, 1):.3g} %" if whole > 0 else "some"


def differences(of_traces: Sequence[Total], of_usage: Sequence[Total]) -> list[str]:
    """How far the replay of usage records is from that of the traces of the same clients, one line for each
    candidate and quota.
    """
    trace, usage = ({(total.candidate, total.quota): total for total in f} for f in (of_traces, of_usage))
    return [
        f"{name}, {quota}: throttle times {_than(usage[name, quota].throttle_s, total.throttle_s)},"
        f" throttled time {_than(usage[name, quota].throttled_s, total.throttled_s)}"
        for (name, quota), total in trace.items()
        if (name, quota) in usage and (total.violations or usage[name, quota].violations)
    ]


def _than(usage_s: float, trace_s: float) -> str:
    told = f"{usage_s:,.1f} s of usage, {trace_s:,.1f} s of traces"
    return f"{told} ({100 * (usage_s / trace_s - 1):+.1f} %)" if trace_s else told
