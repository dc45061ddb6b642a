"""The quota table: all configured quotas, and the replication throttles, as one immutable value."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from weir.quotas.replication.throttles import NO_THROTTLES, ReplicationThrottles
from weir.quotas.table.entities import Entity, Tags
from weir.quotas.table.groups import NO_GROUPS, QuotaGroups
from weir.quotas.table.immutable_map import ImmutableMap
from weir.quotas.table.limits import NONE, Limits
from weir.quotas.table.options import PLAIN, Options, Pacing
from weir.quotas.table.quota_delta import NO_DELTA, QuotaDelta, QuotaValue, changed, difference
from weir.quotas.table.quota_entries import QuotaEntries, topic_of
from weir.quotas.table.quota_kind import BYTE_RATES, OF_CLIENTS, OF_GROUPS, OF_IPS, OF_PREFIXES, OF_TOPICS
from weir.quotas.table.quota_kind import QuotaKey as QuotaKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from weir.quotas.replication.throttles import ConfigKey


def keys_of(entity: Entity) -> tuple[QuotaKey, ...]:
    """Return the quotas that an entity can have. An IP address can have a connection rate (KIP-612), a topic
    can have byte rates, a topic prefix can have counts, a group all limits of clients, users and client-ids
    can have all quotas of clients (KIP-546).
    """
    if entity.topic_prefix is not None:
        return OF_PREFIXES
    if entity.group is not None:
        return OF_GROUPS
    return OF_IPS if entity.ip is not None else OF_TOPICS if entity.topic is not None else OF_CLIENTS


def has_budgets(entity: Entity) -> bool:
    """Return True if the quotas of an entity are held by budgets, which have a pacing and a scope."""
    return entity.ip is None and entity.topic_prefix is None


NO_BUDGETS: Final = "rates of connections, and counts of topics, have no pacing and no scope"
"""Reason why an entity without budgets cannot have these options."""
Quota: TypeAlias = tuple[Entity, QuotaKey]
"""Key of a configured value: an entity, and the kind of quota."""


_VERSIONS: Final = count()


class QuotaTable:
    """An immutable set of configured quotas. Tables with the same quotas are equal, in any order.

    Enforced entries and shadow entries are independent: an entity may have either, or both. Shadow entries do
    not change enforcement. For the counters of shadow quotas, shadow entries replace the enforced entries of
    the same entities.

    Replication throttles (KIP-73) are part of the table, so that every store keeps them with the quotas. They
    have no mode: `in_shadow` does not change them.

    A table made from another one by a delta shares its values, and also the lookups that the other one has
    computed, with the changed values replaced. So the cost of a change depends on the number of changed
    values, not on the number of values.
    """

    __slots__ = (
        "_all_in_shadow",
        "_enforced",
        "_limits",
        "_paced",
        "_shadow",
        "_shadow_limits",
        "_steps",
        "_topics",
        "_version",
        "groups",
        "is_prepared",
        "pacing",
        "replication",
    )

    def __init__(
        self,
        values: Mapping[Quota, float] | None = None,
        shadow: Mapping[Quota, float] | None = None,
        options: Mapping[Quota, Options] | None = None,
        shadow_options: Mapping[Quota, Options] | None = None,
        pacing: Pacing = Pacing.KAFKA,
        *,
        replication: ReplicationThrottles = NO_THROTTLES,
        groups: QuotaGroups = NO_GROUPS,
    ) -> None:
        """Begin with these values (units per second, or percent of one thread), options and throttles.
        `pacing` is the default of entries without pacing. Raises ValueError if a value is not a finite number
        above 0.
        """
        self._enforced = QuotaEntries(values, options)
        self._shadow = QuotaEntries(shadow, shadow_options)
        self.pacing = pacing
        """Kind of limiter (Kafka's or smooth) of byte rates whose entries set no pacing."""
        self.replication = replication
        """Replication throttles of brokers and topics (KIP-73)."""
        self.groups = groups
        """Members and parents of groups. A group's quotas are entries of the table."""
        self._limits: dict[QuotaKey, Limits] = {}
        self._shadow_limits: dict[QuotaKey, Limits] = {}
        self._topics: dict[tuple[QuotaKey, bool], ImmutableMap[str, float]] = {}
        self._all_in_shadow: QuotaTable | None = None
        self._paced: QuotaTable | None = None
        self._version = next(_VERSIONS)
        """Number that only this table has, of those in this process."""
        self._steps: tuple[tuple[int, QuotaDelta], ...] = ((self._version, NO_DELTA),)
        """Versions of former tables, and the deltas that lead from those tables to this one."""
        self.is_prepared = False
        """True if `prepared` has run. Limits that are equal to those of the former table are then the same
        objects, so that a comparison by `is` finds the changed limits.
        """

    @property
    def values(self) -> Mapping[Quota, float]:
        """Enforced values, read-only: (entity, key) → value, in the order of configuration."""
        return self._enforced.values

    @property
    def shadow(self) -> Mapping[Quota, float]:
        """Values of shadow entries, which are counted but not enforced: (entity, key) → value. Read-only."""
        return self._shadow.values

    def options(self, *, shadow: bool = False) -> Mapping[Quota, Options]:
        """Return the options of enforced values, or of shadow values: (entity, key) → options. Read-only;
        values without options are missing.
        """
        return self._side(shadow).options

    def options_of(self, entity: Entity, *, shadow: bool = False) -> Options:
        """Return the options of an entity's enforced entry, or of its shadow entry."""
        options = self._side(shadow).options
        if not options:
            return PLAIN
        return next((options[entity, key] for key in keys_of(entity) if (entity, key) in options), PLAIN)

    def get(self, quota: Quota, *, shadow: bool = False) -> QuotaValue | None:
        """Return an enforced value, or a shadow value, with its options; None for no entry."""
        return self._side(shadow).get(quota)

    def rates_of(self, entity: Entity, *, shadow: bool = False) -> dict[QuotaKey, float]:
        """Return the enforced values, or the shadow values, of an entity."""
        side = self._side(shadow)
        found = ((key, side.get((entity, key))) for key in keys_of(entity))
        return {key: new.value for key, new in found if new is not None}

    def entities(self) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
        """Yield each entity that has enforced values, with key → value."""
        return self._enforced.by_entity()

    def shadow_entities(self) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
        """Yield each entity that has shadow values, with key → value."""
        return self._shadow.by_entity()

    def limits(self, key: QuotaKey) -> Limits:
        """Return the enforced limits of one key, prepared for lookup at the first call."""
        limits = self._limits.get(key)
        if limits is None:
            limits = self._limits[key] = Limits(self._enforced.of(key), self.pacing)
        return limits

    def shadow_limits(self, key: QuotaKey) -> Limits:
        """Return the limits of one key as if shadow entries were enforced and replaced enforced entries;
        prepared for lookup at the first call.

        The caller must ignore each looked-up `Limit` whose `is_shadow` is False: the limit of an enforced
        entry. If the key has no shadow entry, the result has no limits.
        """
        limits = self._shadow_limits.get(key)
        if limits is None:
            limits = self._shadow_limits[key] = self._new_shadow_limits(key)
        return limits

    def _new_shadow_limits(self, key: QuotaKey) -> Limits:
        shadow = self._shadow.of(key)
        return self.limits(key).applied(shadow, shadow) if shadow else NONE

    def entry_of(self, key: QuotaKey, tags: Tags, *, shadow: bool = False) -> Entity | None:
        """Return the entity of the entry that limits the clients that share `tags`, by enforced entries or as
        in `shadow_limits`; None if no entry does.
        """
        return (self.shadow_limits(key) if shadow else self.limits(key)).entry_of(tags)

    def topics(self, key: QuotaKey, *, shadow: bool = False) -> Mapping[str, float]:
        """Return topic → rate (bytes/s), of enforced entries or of shadow entries; for counts, topic prefix →
        number. Computed at the first call.
        """
        topics = self._topics.get((key, shadow))
        if topics is None:
            topics = self._topics[key, shadow] = self._side(shadow).topics(key)
        return topics

    def prepared(self, before: QuotaTable | None = None) -> QuotaTable:
        """Prepare all limits for lookup, and the delta that leads from `before`; return this table. Any
        thread may call this before other threads use the table: 100,000 entries take half a second, or no
        time if the table was made from `before`.

        Limits that are equal in the former table `before` become the same objects as there, so that limiters
        with these limits need no update.
        """
        if before is not None:
            self.delta(before)
        if not self.is_prepared:
            former = QuotaTable() if before is None else before
            for key in QuotaKey:
                self._limits[key] = _old_if_same(self.limits(key), former.limits(key))
                self._shadow_limits[key] = _old_if_same(self.shadow_limits(key), former.shadow_limits(key))
            for key in BYTE_RATES:
                self.topics(key)
                self.topics(key, shadow=True)
            self.is_prepared = True
        return self

    def delta(self, before: QuotaTable) -> QuotaDelta:
        """Return the delta that leads from `before` to this table. Compares both tables unless this one was
        made from `before`, or `before` is a table of the latest comparisons.
        """
        for version, delta in self._steps:
            if version == before._version:
                return delta
        delta = QuotaDelta(
            difference(before._enforced, self._enforced),
            difference(before._shadow, self._shadow),
            changed(before.replication.values, self.replication.values),
            changed(before.groups.members, self.groups.members),
            changed(before.groups.parents, self.groups.parents),
        )
        self._steps = (*self._steps[-2:], (before._version, delta))  # of the store, limiters, workers
        return delta

    def applied(self, delta: QuotaDelta) -> QuotaTable:
        """Return the table after these changes, at a cost that depends only on the number of changes; this
        table if no value changes. Raises ValueError if a value is not a finite number above 0, or a throttle
        does not exist.
        """
        delta = self._effective(delta)
        if not delta.number:
            return self
        groups = self.groups.updated(delta.members, delta.parents)
        made = QuotaTable(pacing=self.pacing, replication=self.replication, groups=groups)
        if delta.replication:
            made.replication = self.replication.altered(delta.replication)
        made._enforced = self._enforced.applied(delta.enforced)
        made._shadow = self._shadow.applied(delta.shadow)
        made._steps = ((self._version, delta),)
        made._take_lookups(self, delta)
        return made

    def _effective(self, delta: QuotaDelta) -> QuotaDelta:
        """Return the changes that lead to another value."""
        enforced, shadow, throttles = self._enforced, self._shadow, self.replication.values
        return QuotaDelta(
            {quota: new for quota, new in delta.enforced.items() if new != enforced.get(quota)},
            {quota: new for quota, new in delta.shadow.items() if new != shadow.get(quota)},
            {key: new for key, new in delta.replication.items() if new != throttles.get(key)},
            {key: new for key, new in delta.members.items() if new != self.groups.members.get(key)},
            {key: new for key, new in delta.parents.items() if new != self.groups.parents.get(key)},
        )

    def _take_lookups(self, before: QuotaTable, delta: QuotaDelta) -> None:
        """Take what the former table has computed, with the changed values replaced."""
        changed = {**delta.enforced, **delta.shadow}.keys()
        for key, limits in before._limits.items():
            values = {entity: new for (entity, its_key), new in delta.enforced.items() if its_key is key}
            self._limits[key] = limits.applied(values) if values else limits
        for key, limits in before._shadow_limits.items():
            entities = [entity for entity, its_key in changed if its_key is key]
            self._shadow_limits[key] = self._changed_shadow_limits(limits, key, entities)
        for (key, is_shadow), topics in before._topics.items():
            side = delta.shadow if is_shadow else delta.enforced
            rates: dict[str, float | None] = {
                name: new and new.value
                for (entity, its_key), new in side.items()
                if its_key is key and (name := topic_of(entity)) is not None
            }
            self._topics[key, is_shadow] = topics.updated(rates)
        if before._all_in_shadow is not None:
            in_shadow = {quota: self._shadow_or_enforced(quota) for quota in changed}
            self._all_in_shadow = before._all_in_shadow.applied(delta._replace(enforced={}, shadow=in_shadow))
        if before._paced is not None:
            self._paced = before._paced.applied(delta)
        self.is_prepared = before.is_prepared

    def _changed_shadow_limits(self, limits: Limits, key: QuotaKey, changed: Collection[Entity]) -> Limits:
        if not self._shadow.has(key):
            return NONE
        if limits is NONE:  # the first shadow entries of this key
            return self._new_shadow_limits(key)
        values = {entity: self._shadow_or_enforced((entity, key)) for entity in changed}
        in_shadow = {entity for entity in changed if (entity, key) in self._shadow.values}
        return limits.applied(values, in_shadow) if values else limits

    def _shadow_or_enforced(self, quota: Quota) -> QuotaValue | None:
        return self._shadow.get(quota) or self._enforced.get(quota)

    def _side(self, shadow: bool) -> QuotaEntries:  # enforced entries, or shadow entries
        return self._shadow if shadow else self._enforced

    def altered(
        self, changes: Mapping[Quota, float | None], *, shadow: bool = False, options: Options | None = None
    ) -> QuotaTable:
        """Return a table with changed values (None removes a value) of enforced entries or of shadow entries.
        The changed entries get `options`, or keep their own if `options` is None. Raises ValueError if a
        value is not a finite number above 0.
        """
        side: dict[Quota, QuotaValue | None] = {}
        for entity in dict.fromkeys(entity for entity, _key in changes):
            its = self.options_of(entity, shadow=shadow) if options is None else options
            for key in QuotaKey:
                before = self._side(shadow).get((entity, key))
                value = changes.get((entity, key), before and before.value)
                side[entity, key] = None if value is None else QuotaValue(value, its)
        return self.applied(QuotaDelta({}, side) if shadow else QuotaDelta(side))

    def replication_altered(self, changes: Mapping[ConfigKey, str | None]) -> QuotaTable:
        """Return a table with changed replication throttles (None removes one), and the same quotas. Raises
        ValueError for a throttle that does not exist, or a value of another form.
        """
        return self.applied(QuotaDelta(replication=changes))

    def in_shadow(self) -> QuotaTable:
        """Return a table in which every entry is a shadow entry (counted, not enforced), made at the first
        call. An enforced entry is left out if its entity already has a shadow entry for the same quota.
        """
        if self._all_in_shadow is None:
            enforced, shadow = self._enforced, self._shadow
            self._all_in_shadow = QuotaTable(
                None,
                {**enforced.values, **shadow.values},
                None,
                {quota: its for quota, its in enforced.options.items() if quota not in shadow.values}
                | dict(shadow.options),
                self.pacing,
                replication=self.replication,
                groups=self.groups,
            )
        return self._all_in_shadow

    def paced(self, pacing: Pacing) -> QuotaTable:
        """Return a table with the same quotas, in which byte rates without a pacing get `pacing`. The new
        table is made at the first call and kept.
        """
        if self.pacing is pacing:
            return self
        if self._paced is None:
            paced = self._paced = QuotaTable(pacing=pacing, replication=self.replication, groups=self.groups)
            paced._enforced, paced._shadow = self._enforced, self._shadow
        return self._paced

    def has(self, key: QuotaKey) -> bool:
        """Return True if a value of this key is configured, enforced or in shadow."""
        return self._enforced.has(key) or self._shadow.has(key)

    def __len__(self) -> int:
        """Return the number of configured values: enforced, in shadow, and of replication throttles."""
        return len(self.values) + len(self.shadow) + len(self.replication)

    def __eq__(self, other: object) -> bool:
        """Return True if both tables have the same quotas and replication throttles. 100,000 equal entries
        take up to half a second.
        """
        if self is other:
            return True
        if not isinstance(other, QuotaTable):
            return NotImplemented
        return (
            self._enforced == other._enforced
            and self._shadow == other._shadow
            and self.pacing is other.pacing
            and self.replication == other.replication
            and self.groups == other.groups
        )

    def __hash__(self) -> int:
        """Return the hash of the values; equal tables have equal hashes."""
        return hash((self._enforced, self._shadow, self.replication))

    def __repr__(self) -> str:
        """Return a text with all values and options, for test failures."""
        said = f"QuotaTable({self.values!r}, shadow={self.shadow!r}"
        if self._enforced.options or self._shadow.options:
            said += f", options={self._enforced.options!r}, shadow_options={self._shadow.options!r}"
        if self.pacing is not Pacing.KAFKA:
            said += f", pacing={self.pacing!r}"
        if len(self.groups.parents):
            said += f", members={self.groups.members!r}, parents={self.groups.parents!r}"
        return f"{said}, replication={self.replication!r})" if len(self.replication) else f"{said})"


def _old_if_same(new: Limits, old: Limits) -> Limits:
    return old if new.same_as(old) else new
