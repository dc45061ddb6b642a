"""Summarize a recommendation: tables for the operator, and the first lines of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import polars as pl

from weir.pipeline.outcome import Listing
from weir.pipeline.recommend.flags import MEANINGS
from weir.pipeline.recommend.groups import of_groups
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.notes import Found, counted, notes
from weir.pipeline.recommend.outlook import by_weekday
from weir.pipeline.recommend.plan import PERCENTILES, ROBUST, RecommendationPlan
from weir.pipeline.tables import CLIENT
from weir.quotas import QuotaKey

LARGEST: Final = 5
"""Number of proposals that the summary lists for each quota: the largest ones."""
FARTHEST: Final = 3
"""Number of entities that the summary names for each tier: those that move farthest to it."""
NAME_CHARS_MAX: Final = 60
"""Maximum length (characters) of a name in the summary; the table and the file have the whole name."""
Cells: TypeAlias = tuple[str | int | float | None, ...]


def listings(found: Found) -> Iterator[Listing]:
    """Yield tables: each quota's largest proposals, flags, tiers, groups, and the weekdays."""
    columns = (*CLIENT, "quota", "used", "now", "lower", "proposed", "upper", "flags")
    rows = tuple(row for quota in found.plan.quotas for row in _largest(found.table, quota))
    yield Listing(f"the {LARGEST} largest of each quota", columns, rows)
    if found.flags:
        flags = tuple((flag, count, MEANINGS[flag]) for flag, count in found.flags.items())
        yield Listing("flags", ("flag", "proposals", "meaning"), flags)
    yield Listing(
        "tiers: a few quotas instead of a value for each entity",
        ("quota", "tier", "entities", "up", "down", "without a quota now", "farthest"),
        tuple(_tiers(found)),
    )
    if found.groups:
        yield of_groups(found.groups)
    weekdays = by_weekday(found.loads).with_columns(pl.col("usual", "busiest").round(2))
    title = "load of the cluster in the busiest hour of the day"
    yield Listing(title, tuple(weekdays.columns), tuple(weekdays.iter_rows()))


def _tiers(found: Found) -> Iterator[Cells]:
    """Yield each tier with the number of its entities, how many of them move up or down to it from their
    current quota, and the names of those that move farthest.
    """
    now, tier = pl.col("current"), pl.col("tier")
    distance = (tier / now).log().abs().fill_null(0.0)
    client_id = pl.coalesce("client_id", pl.col("client_id_prefix") + "*")
    name = pl.concat_str("user", client_id, separator=" ", ignore_nulls=True)
    rows = found.table.sort(-distance, *POT).group_by("quota", "tier")
    each = rows.agg(
        pl.len(),
        (now < tier).sum().alias("up"),
        (now > tier).sum().alias("down"),
        now.is_null().sum(),
        name.filter(now != tier).head(FARTHEST).alias("names"),
    )
    for quota in found.plan.quotas:
        of_quota = each.filter(pl.col("quota") == quota.value).sort("tier")
        for *counts, names in of_quota.iter_rows():
            yield (*counts, ", ".join(map(_short, names)))


def _largest(table: pl.DataFrame, quota: QuotaKey) -> Iterator[Cells]:
    of_quota = table.filter(pl.col("quota") == quota.value)
    rows = of_quota.sort("proposed", "used", *POT, descending=[True, True, False, False, False])
    for row in rows.head(LARGEST).iter_rows(named=True):
        prefix = row["client_id_prefix"]
        names = (row["user"], row["client_id"] if prefix is None else f"{prefix}*")
        rates = _rounded(*(row[name] for name in ("used", "current", "lower", "proposed", "upper")))
        yield (*(name and _short(name) for name in names), quota.value, *rates, ", ".join(row["flags"]))


def _rounded(*rates: float | None) -> list[float | None]:
    return [rate and round(rate, 2) for rate in rates]


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARS_MAX else f"{name[: NAME_CHARS_MAX - 3]}..."


def header(found: Found) -> Iterator[str]:
    """Yield the comment lines at the top of the quota file: the date, data, parameters and counts of the
    recommendation.
    """
    plan = found.plan
    yield f"Recommended by `weir pipeline recommend`, {plan.now:%Y-%m-%d %H:%M} UTC."
    entities = counted(found.entities, "entity, a", "entities, each")
    yield f"Use: {found.span}; {entities} {found.level}."
    yield f"Data: cluster {plan.cluster}, version {found.version} of the table rollup."
    yield (
        f"Need: {PERCENTILES[plan.percentile]} of {_hours(plan)}, at the broker where it is highest, "
        f"x {1 + plan.growth:g} growth x {plan.headroom:g} headroom, at least the floor."
    )
    yield from _values("Floor", {key: plan.floor(key) for key in plan.quotas})
    yield from _values("Capacity", plan.capacity, f", x {plan.over_commitment:g} over-commitment")
    covered = found.table.select(POT).unique().height - found.entries
    yield f"Entries: {found.entries} of entities; {covered} more are left to the default entry."
    for flag, count in found.flags.items():
        yield f"Flag: {flag} ({MEANINGS[flag]}): {counted(count, 'value', 'values')}."
    yield from notes(found)


def _hours(plan: RecommendationPlan) -> str:
    percentile = ROBUST if plan.hours_percentile is None else plan.hours_percentile
    return "the busiest hour" if percentile == 100 else f"the {percentile:g}th percentile of hours"


def _values(what: str, values: Mapping[QuotaKey, float], more: str = "") -> Iterator[str]:
    if values:
        yield f"{what}: {', '.join(f'{key.value} {value:.15g}' for key, value in values.items())}{more}."
