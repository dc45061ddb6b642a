"""What a replay has come to, in a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from pipeline.outcome import Listing
from pipeline.replay_candidates import KEYS, RECORDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUDGET: Final = ("quota", "user", "client_id", "broker")


def totals(hours: DataFrame, names: Sequence[str]) -> Listing:
    """What each candidate's budgets come to, by quota; `names` are the candidates in order."""
    of_budgets = hours.groupBy("candidate", *BUDGET).agg(
        F.sum("violations").alias("violations"),
        F.sum("throttle_ms").alias("throttle_ms"),
        F.sum("throttled_s").alias("throttled_s"),
        F.sum("given_up").alias("given_up"),
    )
    summed = of_budgets.groupBy("candidate", "quota").agg(
        F.count_if(F.col("violations") > 0).alias("throttled"),
        F.sum("violations").alias("violations"),
        (F.sum("throttle_ms") / 1000).alias("throttle_s"),
        F.sum("throttled_s").alias("throttled_s"),
        F.sum("given_up").alias("given_up"),
    )
    found = {(row.quota, row.candidate): row for row in summed.collect()}  # candidates times quotas
    rows = []
    for key in KEYS:
        for name in names:
            row = found.get((key.value, name))
            if row is not None:
                rows.append(
                    (
                        key.value,
                        name,
                        int(row.throttled),
                        int(row.violations),
                        round(float(row.throttle_s), 1),
                        round(float(row.throttled_s), 1),
                        int(row.given_up),
                    )
                )
    columns = ("quota", "quotas of", "throttled", "violations", "throttle times s", "throttled s", "given up")
    return Listing("by quota: how many were throttled, how often, for how long", columns, tuple(rows))


def top(hours: DataFrame, names: Sequence[str], most: int) -> Listing:
    """Those who wait longest under any candidate, or did, side by side."""
    wide = hours.groupBy(*BUDGET).pivot("candidate", list(names)).agg(F.sum("throttled_s"))
    columns = [F.coalesce(F.col(f"`{name.replace('`', '``')}`"), F.lit(0.0)) for name in names]
    longest = columns[0] if len(columns) == 1 else F.greatest(*columns)
    ranked = wide.where(longest > 0).orderBy(longest.desc(), *BUDGET).limit(most)
    rows = tuple(
        (
            row["quota"],
            row["user"],
            row["client_id"],
            None if row["broker"] is None else str(row["broker"]),
            *(None if row[name] is None else round(row[name], 1) for name in names),
        )
        for row in ranked.collect()
    )
    title = f"throttled s, the longest {most}"
    return Listing(title, (*BUDGET, *names), rows)


def held_back(hours: DataFrame, span_s: float) -> list[str]:
    """Where demand was held back while it was recorded, one line for each quota."""
    was = hours.where((F.col("candidate") == RECORDED) & (F.col("throttled_s") > 0))
    of_clients = was.groupBy(*BUDGET).agg(F.sum("throttled_s").alias("throttled_s"))
    found = of_clients.groupBy("quota").agg(F.count("*").alias("clients"), F.sum("throttled_s").alias("s"))
    return [
        f"{row.quota}: {row.clients} were throttled {share(row.s, row.clients * span_s)} of that time:"
        " what they would have asked for otherwise is not known, so more than that is not replayed"
        for row in found.orderBy("quota").collect()  # one a quota
    ]


def share(part: float, whole: float) -> str:
    """Such as `12 %`."""
    return f"{100 * min(part / whole, 1):.3g} %" if whole > 0 else "some"


def differences(hours: DataFrame, other: DataFrame, names: Sequence[str]) -> list[str]:
    """How far the replay of usage records is from that of the traces, of the same clients: a line for each
    candidate and quota.
    """
    lines = []
    of_traces, of_usage = _sums(hours), _sums(other)
    for name in names:
        for key in KEYS:
            trace, usage = (found.get((name, key.value), (0.0, 0.0)) for found in (of_traces, of_usage))
            if any((*trace, *usage)):
                lines.append(
                    f"{name}, {key.value}: throttle times {_than(usage[0], trace[0])},"
                    f" throttled time {_than(usage[1], trace[1])}"
                )
    return lines


def _sums(hours: DataFrame) -> dict[tuple[str, str], tuple[float, float]]:
    summed = hours.groupBy("candidate", "quota").agg(
        (F.sum("throttle_ms") / 1000).alias("throttle_s"), F.sum("throttled_s").alias("throttled_s")
    )
    return {
        (row.candidate, row.quota): (float(row.throttle_s), float(row.throttled_s))
        for row in summed.collect()  # candidates times quotas
    }


def _than(usage_s: float, trace_s: float) -> str:
    told = f"{usage_s:,.1f} s of usage, {trace_s:,.1f} s of traces"
    return f"{told} ({100 * (usage_s / trace_s - 1):+.1f} %)" if trace_s else told
