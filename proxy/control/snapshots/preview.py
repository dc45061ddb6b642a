"""The effect that changed quotas would have had on the last ten minutes.

The history has the rates by which Kafka decides about throttling, one per second. From these rates r, and the
limit L after the change, follow bounds of the time for which an entity would have been throttled:

- At least: in a second with r above L, the entity would have sent no more than L allows, so it would have
  been muted for 1 - L / r of the second. It would not have made up for the lost requests later.
- At most: the entity would have sent everything, later. Its backlog grows by r - L in each second, and falls
  to no less than 0; the entity is throttled in each second with a backlog. If a limit held the entity back,
  the rates do not show the demand, so the upper bound is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable
from typing import Final, NamedTuple

from weir.proxy.control.snapshots import sentences
from weir.proxy.control.snapshots.entities import identity
from weir.proxy.control.snapshots.history import History, Track
from weir.proxy.control.snapshots.names import shortened
from weir.proxy.control.snapshots.records import Preview, PreviewedEntity
from weir.proxy.control.snapshots.sources import SnapshotSources
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.table.quota_kind import KINDS

ENTITIES_MAX: Final = 100
"""Maximum number of entities in a preview."""
SLICE: Final = 25
"""Number of entities computed in one step, which takes about a millisecond."""


class Effect(NamedTuple):
    """Bounds of the throttling under a limit."""

    lower_s: float
    upper_s: float
    share_over: float
    """Share of the seconds in which the rate was above the limit."""


def effect(rates: Iterable[float], limit: float) -> Effect:
    """Return the bounds of the throttling of an entity with these rates, one per second; NaN for none.

    >>> effect([50.0, 200.0, 100.0, 0.0], limit=100.0)
    Effect(lower_s=0.5, upper_s=2.0, share_over=0.25)
    """
    lower_s = backlog = 0.0
    upper_s = number = over = 0
    for rate in rates:
        if math.isnan(rate):
            continue
        number += 1
        if rate > limit:
            over += 1
            lower_s += 1 - limit / rate
        backlog = max(backlog + rate - limit, 0.0)
        upper_s += backlog > 0
    return Effect(round(lower_s, 1), float(upper_s), round(over / number, 4) if number else 0.0)


def read_preview(
    sources: SnapshotSources, history: History, entity: Entity, keys: Collection[QuotaKey], after: QuotaTable
) -> Generator[None, None, Preview]:
    """Return the effect that the table `after` would have had. It differs from the table in force by the
    quotas `keys` of `entity`. Yield between steps of about a millisecond.
    """
    before = sources.registry.table
    found: list[PreviewedEntity] = []
    number = 0
    for index, track in enumerate(history.tracks(), start=1):
        if track.key.quota in keys and _concerns(track, entity, before, after):
            number += 1
            if len(found) < ENTITIES_MAX:
                found.append(_previewed(track, after))
        if index % SLICE == 0:
            yield
    found.sort(key=lambda one: one.share_over, reverse=True)
    return Preview(now_ms=sources.unix_ms(), hidden=number - len(found), entities=tuple(found))


def _concerns(track: Track, entity: Entity, before: QuotaTable, after: QuotaTable) -> bool:
    """Return True if the entry of `entity` limits the enforced quota of this track before or after the
    change.
    """
    key = track.key
    if key.shadow:
        return False
    return any(table.entry_of(key.quota, key.tags) == entity for table in (before, after))


def _previewed(track: Track, after: QuotaTable) -> PreviewedEntity:
    key = track.key
    limit = after.limits(key.quota).of(key.tags)
    bounds = effect(track.rates(), math.inf if limit is None else limit)
    held = track.was_held()
    upper_s = bounds.upper_s if limit is None or not held else None
    names = tuple(map(shortened, key.tags))
    return PreviewedEntity(
        id=identity(key),
        limit=limit,
        throttled_s_lower=bounds.lower_s,
        throttled_s_upper=upper_s,
        share_over=bounds.share_over,
        history=track.history(),
        sentence=_sentence(track, names, limit, bounds, upper_s),
    )


def _sentence(
    track: Track, names: tuple[str, ...], limit: float | None, bounds: Effect, upper_s: float | None
) -> str:
    key = track.key
    who = f"{sentences.entity_text(names)} {sentences.where_text(key.where)}"
    if limit is None:
        return f"{who} would have had no limit of {key.quota.value}"
    quota = f"{key.quota.value} {sentences.rate_text(limit, KINDS[key.quota].unit)}"
    most = f"to {upper_s:g} s" if upper_s is not None else "s or more (unknown: a quota held it back)"
    return f"{who} would have been throttled for {bounds.lower_s:g} {most} under {quota}"
