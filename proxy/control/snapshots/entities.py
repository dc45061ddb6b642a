"""Records of entities: one for each quota of the clients (topic, IP address) that share a limit at a broker.

Clients choose the number of entities, so all entities are examined in steps. Only the listed ones get
records: the first ones in the order that the operator asks for. Metrics list other entities
(`weir.proxy.admin.entities`), with the same values (`values`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from operator import itemgetter
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec

from weir.proxy.control.budgets import CLUSTER, Counted, all_budgets, usage_of
from weir.proxy.control.peers import EntityPeers, Peers, WantedPeers
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots import sentences
from weir.proxy.control.snapshots.filters import BrokerName, Filter, broker_name
from weir.proxy.control.snapshots.history import SLICE, History, Key, is_throttled, throttled_lately
from weir.proxy.control.snapshots.names import shortened
from weir.proxy.control.snapshots.records import Entities, EntityRecord, Rates
from weir.proxy.control.snapshots.sources import SnapshotSources
from weir.proxy.control.snapshots.values import Values, read_values
from weir.proxy.control.supervisor import stepwise
from weir.quotas import Entity, QuotaKey, Tags
from weir.quotas.storage import StorageBudgets
from weir.quotas.table.quota_kind import KINDS
from weir.quotas.topic_counts import CountLimit, CountReading, TopicCounts

_QUOTA: Final = msgspec.Meta(extra_json_schema={"enum": ["", *(key.value for key in QuotaKey)]})
NO_HISTORY: Final[Rates] = (None,) * 60


class EntityFilter(Filter, frozen=True):
    """Choice of entities, and their order."""

    quota: Annotated[str, _QUOTA] = ""
    """Kafka's name of the quota; empty for all."""
    broker: BrokerName = ""
    shadow: bool = False
    """True for shadow quotas instead of enforced ones."""

    def __post_init__(self) -> None:
        """Raise ValueError, which is msgspec's error then, if no quota has this name."""
        if self.quota:
            QuotaKey(self.quota)

    def has(self, key: Key) -> bool:
        """Return True if the entity is chosen."""
        if self.quota not in ("", key.quota.value):
            return False
        if self.broker and broker_name(key.where) != self.broker:
            return False
        return not self.q or any(self.q.casefold() in name.casefold() for name in key.tags if name)


class SortedEntities(EntityFilter, frozen=True):
    """Choice of entities, and their order."""

    sort: Literal["usage", "rate", "name", "throttled"] = "usage"
    """`usage`, `rate` and `throttled` (rest of the throttle time) put the largest first."""


class _FoundBudget(NamedTuple):
    key: Key
    budget: Counted


_Ranked: TypeAlias = tuple[float, Tags, _FoundBudget]


Rank: TypeAlias = Callable[[_FoundBudget], float]
"""Function by whose result entities are sorted, the smallest first; equal ones are sorted by name."""


async def read_entities(sources: SnapshotSources, history: History, wanted: SortedEntities) -> Entities:
    now_ms = sources.now_ms()
    ranks: dict[str, Rank] = {
        "usage": lambda found: -usage_of(found.budget.rate(now_ms), found.budget.limit),
        "rate": lambda found: -found.budget.rate(now_ms),
        "name": lambda _found: 0,
        "throttled": lambda found: -_left_ms(found.budget, now_ms),
    }
    listed = await _listed(sources, history, wanted, ranks[wanted.sort], lambda _budget: True)
    existing = [] if sources.counts is None else await stepwise(_prefixes(sources.counts, wanted))
    existing += [] if sources.storage is None else _storage(sources.storage, wanted)
    if not existing:
        return listed
    by: dict[str, Callable[[EntityRecord], float]] = {
        "usage": lambda record: -(record.usage or 0),
        "rate": lambda record: -record.rate,
        "name": lambda _record: 0,
        "throttled": lambda record: -record.throttle_ms,
    }
    records = sorted([*listed.entities, *existing], key=by[wanted.sort])
    hidden = listed.hidden + max(len(records) - wanted.limit, 0)
    return msgspec.structs.replace(listed, entities=tuple(records[: wanted.limit]), hidden=hidden)


def _prefixes(counts: TopicCounts, wanted: EntityFilter) -> Generator[None, None, list[EntityRecord]]:
    """Return the records of limits on the number of topics and partitions. Yield between steps of about a
    millisecond.
    """
    found: list[EntityRecord] = []
    for readings in slices(list(counts.readings()), SLICE):
        keyed = ((_prefix_key(one.limit), one) for one in readings)
        found += [prefix_record(one) for key, one in keyed if key.shadow == wanted.shadow and wanted.has(key)]
        yield
    return found


def _prefix_key(limit: CountLimit) -> Key:
    return existing_key(Entity(topic_prefix=limit.prefix), limit.key, shadow=limit.is_shadow)


def prefix_record(reading: CountReading) -> EntityRecord:
    """Return the record of a limit on the number of topics or partitions with a prefix."""
    limit, number, refused = reading
    entity = Entity(topic_prefix=limit.prefix)
    usage = f"{sentences.usage_text(limit.key, number, limit.value)} {sentences.where_text(CLUSTER)}"
    return _existing(_prefix_key(limit), entity, number, limit.value, usage, refused)


def _storage(budgets: StorageBudgets, wanted: EntityFilter) -> list[EntityRecord]:
    """Return the records of storage budgets whose storage is known."""
    found: list[EntityRecord] = []
    for mark, is_shadow, _rate, number, _is_over in budgets.readings():
        key = existing_key(mark.entity, mark.key, shadow=is_shadow)
        if number is not None and is_shadow == wanted.shadow and wanted.has(key):
            usage = sentences.storage_text(mark, number)
            found.append(_existing(key, mark.entity, number, mark.value, usage, 0))
    return found


def existing_key(entity: Entity, quota: QuotaKey, *, shadow: bool) -> Key:
    """Return the key of a limit on what exists in the cluster."""
    names = Tags("", "", entity.topic_prefix or "", topic=entity.topic or "", group=entity.group or "")
    return Key(quota, names, CLUSTER, shadow)


def existing_text(entity: Entity) -> str:
    """Return the name of an entity whose limit is one on what exists, such as `topic prefix=pay.`."""
    topic, group, prefix = (
        shortened(name or "") for name in (entity.topic, entity.group, entity.topic_prefix)
    )
    return sentences.entity_text(("", "", "", topic, "", group, prefix))


def _existing(key: Key, entity: Entity, number: int, limit: float, usage: str, refused: int) -> EntityRecord:
    """Return the record of a limit on what exists in the cluster. `usage` is its sentence's predicate."""
    named = entity.topic, entity.group, entity.topic_prefix
    topic, group, prefix = (name and shortened(name) for name in named)
    is_least = KINDS[key.quota].is_minimum
    share = usage_of(limit, number) if is_least else usage_of(number, limit)
    return EntityRecord(
        id=identity(key),
        user=None,
        client_id=None,
        client_id_prefix=None,
        topic=topic,
        ip=None,
        group=group,
        topic_prefix=prefix,
        quota=key.quota.value,
        unit=KINDS[key.quota].unit,
        broker=CLUSTER,
        shadow=key.shadow,
        entry=shortened(str(entity)),
        limit=limit,
        rate=number,
        usage=round(min(share, sentences.USAGE_MAX), 4),
        throttled=False,
        throttled_since_ms=None,
        throttle_ms=0,
        throttles=refused,
        throttled_ms=0,
        connections=0,
        peers=(),
        software=(),
        client_ids=(),
        history=NO_HISTORY,
        sentence=f"{existing_text(entity)} {usage}",
    )


async def read_throttled(sources: SnapshotSources, history: History, wanted: EntityFilter) -> Entities:
    """Return the entities that are throttled, or were in the last 30 s; first those with the longest throttle
    times in the last minute.
    """
    now_ms = sources.now_ms()

    def rank(found: _FoundBudget) -> float:
        track = history.track(found.key)
        return -max(0 if track is None else track.waited_ms(), _left_ms(found.budget, now_ms))

    return await _listed(sources, history, wanted, rank, lambda budget: throttled_lately(budget, now_ms))


async def _listed(
    sources: SnapshotSources,
    history: History,
    wanted: EntityFilter,
    rank: Rank,
    has: Callable[[Counted], bool],
) -> Entities:
    """Return the records of the first entities by `rank` among those for which `has` is true."""
    chosen, hidden = await stepwise(_chosen(sources, wanted, rank, has))
    entities = [EntityPeers(found.key.quota, found.key.tags, found.key.where) for found in chosen]
    peers = await sources.read_peers(WantedPeers(entities, wanted.shadow))
    records = await stepwise(_records(sources, history, chosen, peers))
    return Entities(now_ms=sources.unix_ms(), hidden=hidden, entities=records)


def _chosen(
    sources: SnapshotSources, wanted: EntityFilter, rank: Rank, has: Callable[[Counted], bool]
) -> Generator[None, None, tuple[list[_FoundBudget], int]]:
    """Return the first entities by `rank` among those for which `has` is true, and the number of the others.
    Yield between steps of about a millisecond.
    """
    best: list[_Ranked] = []
    number = 0
    for part in _budgets(sources, wanted, has):
        number += len(part)
        best += [(rank(found), found.key.tags, found) for found in part]
        if len(best) > wanted.limit + 4 * SLICE:
            best = sorted(best, key=itemgetter(0, 1))[: wanted.limit]
        yield
    chosen = [found for *_rank, found in sorted(best, key=itemgetter(0, 1))[: wanted.limit]]
    return chosen, number - len(chosen)


def _records(
    sources: SnapshotSources, history: History, chosen: Sequence[_FoundBudget], peers: Sequence[Peers]
) -> Generator[None, None, tuple[EntityRecord, ...]]:
    """Return the records of these entities. Yield between steps of about a millisecond."""
    entities: list[EntityRecord] = []
    for found, its in zip(chosen, peers, strict=True):
        entities.append(_entity(sources, history, found, its))
        if len(entities) % 25 == 0:
            yield
    return tuple(entities)


def _budgets(
    sources: SnapshotSources, wanted: EntityFilter, has: Callable[[Counted], bool]
) -> Iterator[list[_FoundBudget]]:
    """Yield the budgets of the chosen entities in slices."""
    quotas = list(all_budgets(sources.registry, shadow=wanted.shadow))
    for where, quota, budgets in quotas:
        for part in slices(list(budgets), SLICE):  # budgets may be added between two steps
            found = (_FoundBudget(Key(quota, budget.tags, where, wanted.shadow), budget) for budget in part)
            yield [one for one in found if has(one.budget) and wanted.has(one.key)]


def _entity(sources: SnapshotSources, history: History, found: _FoundBudget, peers: Peers) -> EntityRecord:
    key, budget = found
    now_ms, track = sources.now_ms(), history.track(key)
    table = sources.registry.in_force
    values = read_values(table, key.where, key.quota, budget, now_ms, shadow=key.shadow)
    rate, limit = values.rate, None if values.limit == math.inf else values.limit
    left_ms = max(int(_left_ms(budget, now_ms)), 0)
    user, client_id, prefix, topic, ip, group = (name or None for name in values.names)
    since_ms = None
    if throttled_lately(budget, now_ms):
        since_ms = sources.unix_ms(now_ms if track is None or track.began_ms is None else track.began_ms)
    usage = sentences.usage_text(key.quota, rate, limit)
    said = [f"{sentences.entity_text(values.names)} {usage} {sentences.where_text(key.where)}"]
    if left_ms:
        said.append(sentences.throttle_text(key.quota, left_ms, shadow=key.shadow))
    if sentences.is_of_connections(key.tags):
        said.append(sentences.connections_text(peers.count, peers.addresses, peers.software))
    return EntityRecord(
        id=identity(key),
        user=user,
        client_id=client_id,
        client_id_prefix=prefix,
        topic=topic,
        ip=ip,
        group=group,
        topic_prefix=None,
        quota=key.quota.value,
        unit=KINDS[key.quota].unit,
        broker=key.where,
        shadow=key.shadow,
        entry=_entry(sources, key, values),
        limit=limit,
        rate=round(rate, 2),
        usage=None if limit is None else round(min(usage_of(rate, limit), sentences.USAGE_MAX), 4),
        throttled=is_throttled(budget, now_ms),
        throttled_since_ms=since_ms,
        throttle_ms=left_ms,
        throttles=values.throttled,
        throttled_ms=values.throttle_ms,
        connections=peers.count,
        peers=tuple(peers.addresses),
        software=tuple(peers.software),
        client_ids=tuple(peers.client_ids),
        history=NO_HISTORY if track is None else track.history(),
        sentence=", ".join(said),
    )


def _entry(sources: SnapshotSources, key: Key, values: Values) -> str:
    """Return the entry that sets the limit, and the storage budget that is its cause."""
    if sources.storage is None or not (key.tags.topic or key.tags.group):
        return values.entry
    entity = Entity(topic=key.tags.topic or None, group=key.tags.group or None)
    cause = sources.storage.cause(entity, key.quota, values.limit, shadow=key.shadow)
    return values.entry if cause is None else f"{values.entry}, by {shortened(str(cause))}"


def identity(key: Key) -> str:
    """Return a short name of an entity's quota at a broker, which other entities do not have."""
    text = repr((key.quota.value, tuple(key.tags), key.where, key.shadow))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _left_ms(budget: Counted, now_ms: int) -> float:
    """Return the time (ms) that is left of the budget's throttle; 0 without one."""
    return budget.throttled_until_ms - now_ms if is_throttled(budget, now_ms) else 0
