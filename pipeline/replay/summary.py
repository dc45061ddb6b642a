"""Summarize a replay for the operator: tables and remarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from weir.pipeline.outcome import Listing
from weir.pipeline.replay.candidates import KEYS, RECORDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUDGET: Final = ("quota", "user", "client_id", "broker")


class Total(NamedTuple):
    """Sums over all budgets of one quota under one candidate quota file."""

    quota: str
    candidate: str
    hours: int
    throttled: int
    """Number of budgets that the replay throttled at least once."""
    violations: int
    throttle_s: float
    throttled_s: float
    given_up: int


def totals(hours: DataFrame, names: Sequence[str]) -> list[Total]:
    """Return the totals of the hours in `tables.REPLAY`, ordered by quota, and then by candidate quota file
    in the order of `names`.
    """
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
    found = [Total(**row.asDict()) for row in summed.collect()]  # one row per candidate and quota
    in_order = [key.value for key in KEYS]
    return sorted(found, key=lambda total: (in_order.index(total.quota), names.index(total.candidate)))


def listed(found: Sequence[Total]) -> Listing:
    """Return the totals by quota and candidate quota file as a table for the command line to print."""
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
    return Listing("throttled budgets, violations and times by quota", columns, rows)


def top(hours: DataFrame, names: Sequence[str], most: int) -> Listing:
    """Return a table of the `most` budgets with the longest throttled time (s) under any candidate quota
    file, with one column per file.
    """
    # No pivot: file names may equal column names, or differ only by case, which Spark's columns ignore.
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
    """Return one line for each quota that throttled clients while their usage was recorded, so that they
    requested less than they would have. `span_s` is the length (s) of the recorded time.
    """
    return [
        f"{total.quota}: when recorded, {total.throttled} {'was' if total.throttled == 1 else 'were'}"
        f" throttled {share(total.throttled_s, total.throttled * span_s)} of the time; their demand"
        " without throttles is unknown, and not replayed"
        for total in found
        if total.candidate == RECORDED and total.throttled_s > 0
    ]


def share(part: float, whole: float) -> str:
    """Return the share `part` of `whole` as text, such as `12 %`; the word `some` if `whole` is 0."""
    return f"{100 * min(part / whole, 1):.3g} %" if whole > 0 else "some"


def differences(of_traces: Sequence[Total], of_usage: Sequence[Total]) -> list[str]:
    """Return one line per candidate quota file and quota that compares two replays of the same clients: from
    usage records, and from traces.
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
