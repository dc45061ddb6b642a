"""The effect that changed quotas would have had on the last ten minutes.

The history has the rates by which Kafka decides about throttling, one per second. From these rates r, and the
limit L after the change, follow bounds of the time for which an entity would have been throttled:

- At least: in a second with r above L, the entity would have sent no more than L allows, so it would have
  been muted for 1 - L / r of the second. It would not have made up for the lost requests later.
- At most: the entity would have sent everything, later. Its backlog grows by r - L in each second, and falls
  to no less than 0; the entity is throttled in each second with a backlog. If a limit held the entity back,
  the rates do not show the demand, so the upper bound is unknown.

Of a group, those are throttled that are above their floors. They share what members leave that are below: so
r and L are smaller by the use below floors. A group that had no limit has no rates of its own. Those of its
members with quotas of their own add up to some of its use, which gives the lower bound.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Generator, Iterable, Iterator
from itertools import repeat
from typing import Final, NamedTuple

from weir.proxy.control.budgets import CLUSTER
from weir.proxy.control.snapshots import sentences
from weir.proxy.control.snapshots.entities import NO_HISTORY, existing_key, existing_text, identity
from weir.proxy.control.snapshots.history import History, Key, Track, means
from weir.proxy.control.snapshots.names import shortened
from weir.proxy.control.snapshots.records import Preview, PreviewedEntity
from weir.proxy.control.snapshots.sources import SnapshotSources
from weir.quotas import Entity, QuotaKey, QuotaTable, Tags
from weir.quotas.storage import StorageMark, StorageReading
from weir.quotas.table.entities import BELOW_FLOORS
from weir.quotas.table.groups import ALL
from weir.quotas.table.options import Scope
from weir.quotas.table.quota_kind import COUNTS, KINDS, STORAGE, STORAGE_MARKS
from weir.quotas.topic_counts import TopicCounts

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


def effect(rates: Iterable[float], limit: float, below_floors: Iterable[float] = repeat(0.0)) -> Effect:
    """Return the bounds of the throttling of an entity with these rates, one per second; NaN for none.
    `below_floors`: the part of each that waits for nothing.

    >>> effect([50.0, 200.0, 100.0, 0.0], limit=100.0)
    Effect(lower_s=0.5, upper_s=2.0, share_over=0.25)
    """
    lower_s = backlog = 0.0
    upper_s = number = over = 0
    for rate, below in zip(rates, below_floors, strict=False):
        if math.isnan(rate):
            continue
        number += 1
        if rate > limit:
            over += 1
            kept = below if below < limit else 0.0  # NaN, too
            lower_s += 1 - (limit - kept) / (rate - kept)
        backlog = max(backlog + rate - limit, 0.0)
        upper_s += backlog > 0
    return Effect(round(lower_s, 1), float(upper_s), round(over / number, 4) if number else 0.0)


def read_preview(
    sources: SnapshotSources,
    history: History,
    entity: Entity,
    keys: Collection[QuotaKey],
    after: QuotaTable,
    *,
    shadow: bool = False,
) -> Generator[None, None, Preview]:
    """Return the effect that the table `after` would have had. It differs from the table in force by the
    quotas `keys` of `entity`; with `shadow`, by those of its shadow entry, too. Yield between steps of about
    a millisecond.
    """
    before = sources.registry.table
    found = [] if sources.counts is None else list(_of_prefix(sources.counts, entity, keys, after))
    found += _of_storage(sources, entity, keys, after, shadow=shadow)
    existing = len(found)
    sums = _GroupSums(
        entity.group, {key for key in keys if entity.group and (entity, key) not in before.values}
    )
    number = 0
    for index, track in enumerate(history.tracks(), start=1):
        if track.key.quota in keys and _concerns(track, entity, before, after):
            number += 1
            if len(found) < ENTITIES_MAX:
                found.append(_previewed(history, track, after))
        sums.add(track, after)
        if index % SLICE == 0:
            yield
    hidden = number - (len(found) - existing)
    found += sums.previewed(after)
    found.sort(key=lambda one: one.share_over, reverse=True)
    return Preview(now_ms=sources.unix_ms(), hidden=hidden, entities=tuple(found))


def _of_prefix(
    counts: TopicCounts, entity: Entity, keys: Collection[QuotaKey], after: QuotaTable
) -> Iterator[PreviewedEntity]:
    """Yield the effect of limits on the number of topics or partitions: they delete nothing."""
    prefix = entity.topic_prefix
    if prefix is None or not counts.is_known:
        return
    for key in [key for key in keys if key in COUNTS]:
        number, limit = counts.number(prefix, key), after.rates_of(entity).get(key)
        rest = "has no limit of" if limit is None else f"may get {max(limit - number, 0):.0f} more under"
        what = key.value if limit is None else f"{key.value} {limit:.0f}"
        text = f"has {number} {KINDS[key].unit}, and {rest} {what}"
        is_full = limit is not None and number >= limit
        yield _existing(entity, existing_key(entity, key, shadow=False), limit, text, is_over=is_full)


def _of_storage(
    sources: SnapshotSources, entity: Entity, keys: Collection[QuotaKey], after: QuotaTable, *, shadow: bool
) -> Iterator[PreviewedEntity]:
    """Yield the effect of storage budgets, from what brokers have told last."""
    if sources.storage is None or set(STORAGE).isdisjoint(keys):
        return
    values = after.rates_of(entity, shadow=shadow)
    is_shadow = shadow or sources.registry.in_shadow
    for key in [key for key in STORAGE_MARKS if key in keys or key in values]:
        limit = values.get(key)
        upper_s: float | None = 0.0
        what, is_over = f"would have no {key.value}", False
        if limit is not None:
            mark, rate = StorageMark(entity, key, limit), values.get(QuotaKey.OVER_BYTE_RATE)
            reading = sources.storage.forecast(mark, rate, sources.now_ms(), shadow=is_shadow)
            what, is_over = _storage_effect(reading), reading.is_over
            if rate is not None and not is_shadow and (is_over or reading.number is None):
                upper_s = None  # nobody was limited to this rate, nor is the demand known
        yield _existing(
            entity, existing_key(entity, key, shadow=is_shadow), limit, what, is_over=is_over, upper_s=upper_s
        )


def _existing(
    entity: Entity, key: Key, limit: float | None, what: str, *, is_over: bool, upper_s: float | None = 0.0
) -> PreviewedEntity:
    """Return the effect of a limit on what exists in the cluster. `what` is its sentence's predicate."""
    return PreviewedEntity(
        id=identity(key),
        limit=limit,
        throttled_s_lower=0.0,
        throttled_s_upper=upper_s,
        share_over=float(is_over),
        history=NO_HISTORY,
        sentence=f"{existing_text(entity)} {what}",
    )


def _storage_effect(reading: StorageReading) -> str:
    mark, is_shadow, rate, number, is_over = reading
    if number is None:
        return (
            f"has an unknown number of {KINDS[mark.key].limits}: no broker has told it in the last 5 minutes "
            "(Weir asks while there are storage budgets)"
        )
    what = sentences.storage_text(mark, number)
    if not is_over:
        return f"{what}, so it would not be over"
    if is_shadow or rate is None:
        why = "in shadow" if is_shadow else "without over_byte_rate"
        return f"{what}, so it would be over; {why}, that throttles nobody"
    return (
        f"{what}, so it would be over, and producers would get over_byte_rate {sentences.size_text(rate)}/s"
    )


def _concerns(track: Track, entity: Entity, before: QuotaTable, after: QuotaTable) -> bool:
    """Return True if the entry of `entity` limits the enforced quota of this track before or after the
    change.
    """
    key = track.key
    if key.shadow or (key.tags.group and key.tags.client_id):  # part of a group's use
        return False
    return any(table.entry_of(key.quota, key.tags) == entity for table in (before, after))


def _previewed(history: History, track: Track, after: QuotaTable) -> PreviewedEntity:
    key = track.key
    limit = after.limits(key.quota).of(key.tags)
    below = history.track(key._replace(tags=key.tags._replace(client_id=BELOW_FLOORS)))
    of_floors = below.rates() if key.tags.group and below is not None else repeat(0.0)
    bounds = effect(track.rates(), math.inf if limit is None else limit, of_floors)
    why = "a quota held it back" if limit is not None and track.was_held() else None
    return _made(key, limit, bounds, track.history(), why)


class _GroupSums:
    """Sums of the rates of members that have quotas of their own, for a group that has had no limit."""

    def __init__(self, group: str | None, keys: Collection[QuotaKey]) -> None:
        self._group, self._keys = group, keys
        self._rates: dict[Key, array[float]] = {}

    def add(self, track: Track, after: QuotaTable) -> None:
        """Add the rates of a track, if its clients are members for sure."""
        (quota, tags, where, shadow), group = track.key, self._group
        if quota not in self._keys or group is None or shadow or tags.topic or tags.group:
            return
        if group == ALL or (tags.user and group in after.groups.chain(tags.user, tags.client_id)):
            limit = after.limits(quota).resolve_group(group)
            is_shared = limit is not None and limit.scope is Scope.CLUSTER
            key = Key(quota, Tags("", "", group=group), CLUSTER if is_shared else where, shadow=False)
            rates, before = track.rates(), self._rates.get(key)
            self._rates[key] = rates if before is None else array("f", map(_added, before, rates))

    def previewed(self, after: QuotaTable) -> Iterator[PreviewedEntity]:
        """Yield the effect at each broker."""
        for key, rates in self._rates.items():
            limit = after.limits(key.quota).of(key.tags)
            if limit is not None:
                why = "only members with quotas of their own are known"
                yield _made(key, limit, effect(rates, limit), means(rates), why)


def _added(one: float, other: float) -> float:
    return other if math.isnan(one) else one if math.isnan(other) else one + other


def _made(
    key: Key, limit: float | None, bounds: Effect, history: tuple[float | None, ...], why: str | None
) -> PreviewedEntity:
    """Return the record of an effect. `why` is the reason for which the upper bound is unknown."""
    return PreviewedEntity(
        id=identity(key),
        limit=limit,
        throttled_s_lower=bounds.lower_s,
        throttled_s_upper=bounds.upper_s if why is None else None,
        share_over=bounds.share_over,
        history=history,
        sentence=_sentence(key, limit, bounds, why),
    )


def _sentence(key: Key, limit: float | None, bounds: Effect, why: str | None) -> str:
    names = tuple(map(shortened, key.tags))
    who = f"{sentences.entity_text(names)} {sentences.where_text(key.where)}"
    if limit is None:
        return f"{who} would have had no limit of {key.quota.value}"
    quota = f"{key.quota.value} {sentences.rate_text(limit, KINDS[key.quota].unit)}"
    most = f"to {bounds.upper_s:g} s" if why is None else f"s or more (unknown: {why})"
    return f"{who} would have been throttled for {bounds.lower_s:g} {most} under {quota}"
