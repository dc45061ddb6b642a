"""Summarize a recommendation: counts, tables and remarks for the operator, and the first lines of the
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pyspark.sql import functions as sql

from weir.pipeline.outcome import Listing
from weir.pipeline.recommend.current import Kept
from weir.pipeline.recommend.flags import MEANINGS
from weir.pipeline.recommend.names import WITHOUT
from weir.pipeline.recommend.need import ENTITY, NAMES, Span
from weir.pipeline.recommend.plan import AUTO, PERCENTILES, Plan
from weir.quotas import QuotaKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LARGEST: Final = 5
"""Number of proposals that the summary lists for each quota: the largest ones."""
NAME_CHARS_MAX: Final = 60
"""Maximum length (characters) of a name in the summary; the table and the file have the whole name."""
Cells: TypeAlias = tuple[str | int | float | None, ...]


class Counts(NamedTuple):
    """Numbers of entities, entries and proposals in one recommendation."""

    entities: int
    left_out: Mapping[str, int]
    """Number of entities that get no entry, by the reason for that. The default entry may still apply to
    them.
    """
    entries: int
    covered: int
    """Number of entities that have a proposal but no entry of their own, because the default entry covers
    them.
    """
    proposals: int
    flags: Mapping[str, int]
    """Number of proposals by flag."""


def counted(table: DataFrame, left_out: Mapping[str, int], entities: int) -> Counts:
    """Count the entries, proposals and flags in the table of a recommendation."""
    each = table.groupBy(*ENTITY).agg(
        sql.bool_and("in_default").alias("covered"),
        sql.count(sql.lit(1)).alias("proposals"),
        *(sql.count_if(sql.array_contains("flags", flag)).alias(flag) for flag in MEANINGS),
    )
    sums = each.agg(
        sql.count_if(~sql.col("covered")),
        sql.count_if("covered"),
        *(sql.coalesce(sql.sum(f"`{name}`"), sql.lit(0)) for name in ("proposals", *MEANINGS)),
    ).first()
    assert sums is not None  # an aggregate without grouping has one row
    entries, covered, proposals, *flags = sums
    found = {flag: count for flag, count in zip(MEANINGS, flags, strict=True) if count}
    return Counts(entities, left_out, entries, covered, proposals, found)


def listings(table: DataFrame, plan: Plan, counts: Counts) -> Iterator[Listing]:
    """Yield a table of each quota's largest proposals and, if there are flags, a table of the flags."""
    rows = tuple(row for quota in plan.quotas for row in _largest(table, quota))
    yield Listing(
        f"the {LARGEST} largest of each quota", (*NAMES, "quota", "used", "now", "proposed", "flags"), rows
    )
    if counts.flags:
        flags = tuple((flag, count, MEANINGS[flag]) for flag, count in counts.flags.items())
        yield Listing("flags", ("flag", "proposals", "meaning"), flags)


def _largest(table: DataFrame, quota: QuotaKey) -> Iterator[Cells]:
    rows = (
        table.where(sql.col("quota") == quota.value)
        .orderBy(sql.desc("proposed"), sql.desc("used"), *ENTITY)
        .limit(LARGEST)
    )
    for row in rows.collect():
        prefix = row["client_id_prefix"]
        client_id = row["client_id"] if prefix is None else f"{prefix}*"
        rates = [value and round(value, 2) for value in (row["used"], row["current"], row["proposed"])]
        yield (_short(row["user"]), _short(client_id), quota.value, *rates, ", ".join(row["flags"]))


def _short(name: str | None) -> str | None:
    return name if name is None or len(name) <= NAME_CHARS_MAX else f"{name[: NAME_CHARS_MAX - 3]}..."


def header(
    plan: Plan, level: str, span: Span, counts: Counts, cuts: Mapping[QuotaKey, float]
) -> Iterator[str]:
    """Yield the comment lines at the top of the quota file: the date, parameters and counts of the
    recommendation.
    """
    yield f"Recommended by `weir pipeline recommend`, {plan.now:%Y-%m-%d %H:%M} UTC."
    yield f"Use: {span}; {counts.entities} entities, each {level}."
    hours = (
        "busiest hour" if plan.hours_percentile == 100 else f"{plan.hours_percentile:g}th percentile of hours"
    )
    yield (
        f"Need: {PERCENTILES[plan.percentile]} of the {hours} at any broker, x {1 + plan.growth:g} growth "
        f"x {plan.headroom:g} headroom, at least the floor."
    )
    yield from _values("Floor", {key: plan.floor(key) for key in plan.quotas})
    yield from _values("Capacity", plan.capacity, f", x {plan.over_commitment:g} over-commitment")
    yield f"Entries: {counts.entries} of entities; {counts.covered} more are left to the default entry."
    for flag, count in counts.flags.items():
        yield f"Flag: {flag} ({MEANINGS[flag]}): {count} values."
    yield from notes(plan, counts, cuts)


def notes(plan: Plan, counts: Counts, cuts: Mapping[QuotaKey, float]) -> Iterator[str]:
    """Yield remarks for the operator: quotas that were cut to fit the capacity, and entities without an
    entry.
    """
    for quota, factor in cuts.items():
        if factor < 1:
            yield (
                f"{quota.value}: cut to {factor:.1%} of what is above the floor, to fit the capacity "
                "and over-commitment"
            )
    for why, count in counts.left_out.items():
        yield f"{count} entities {why}: they cannot have an entry"
    if plan.with_default and any(why != WITHOUT for why in counts.left_out):
        yield "the default entry limits these to the floor, except those without a name"


def notes_of_run(plan: Plan, level: str, kept: Kept) -> Iterator[str]:
    """Yield remarks about the chosen kind of entity (level), and about the values of the current file that
    the new file keeps or drops.
    """
    if plan.level == AUTO:
        why = "every user is ANONYMOUS" if level == "client-id" else "there are users with names"
        yield f"entries are by {level}: {why} (choose with --level)"
    stay = sum(map(len, kept.rates.values())) + sum(len(entry.rates) for entry in kept.shadow)
    stay += sum(len(entry.values) for entry in kept.replication)
    if stay:
        yield f"{stay} values are kept from {plan.current_name}"
    if kept.dropped:
        yield (
            f"{kept.dropped} values of {plan.current_name} are dropped: defaults, or of another level "
            f"than {level}; the new entries replace them"
        )


def _values(what: str, values: Mapping[QuotaKey, float], more: str = "") -> Iterator[str]:
    if values:
        yield f"{what}: {', '.join(f'{key.value} {value:.15g}' for key, value in values.items())}{more}."
