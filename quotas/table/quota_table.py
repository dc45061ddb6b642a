"""The quota table: all configured quotas, and the replication throttles, as one immutable value."""

from __future__ import annotations

import math
from enum import Enum
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from weir.quotas.replication.throttles import NO_THROTTLES, ReplicationThrottles
from weir.quotas.table.entities import Entity, Tags
from weir.quotas.table.limits import NONE, Limits
from weir.quotas.table.options import PLAIN, Options, Pacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weir.quotas.replication.throttles import ConfigKey


class QuotaKey(Enum):
    """The kinds of quotas, with Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    """Bytes per second that a client may produce."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    """Bytes per second that a client may fetch."""
    REQUEST_PERCENTAGE = "request_percentage"
    """Request time at a broker that a client may use, in percent of one thread."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions per second that a client may create, add or delete."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """New connections per second that an IP address may open."""


_OF_CLIENTS: Final = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)
_OF_TOPICS: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_OF_IPS: Final = (QuotaKey.CONNECTION_CREATION_RATE,)


def keys_of(entity: Entity) -> tuple[QuotaKey, ...]:
    """Return the quotas that an entity can have. An IP address can have a connection rate (KIP-612), a topic
    can have byte rates, users and client-ids can have all quotas except connection rates (KIP-546).
    """
    return _OF_IPS if entity.ip is not None else _OF_TOPICS if entity.topic is not None else _OF_CLIENTS


Quota: TypeAlias = tuple[Entity, QuotaKey]
"""Key of a configured value: an entity, and the kind of quota."""


class QuotaTable:
    """An immutable set of configured quotas. Tables with the same quotas are equal, in any order.

    Enforced entries and shadow entries are independent: an entity may have either, or both. Shadow entries do
    not change enforcement. For the counters of shadow quotas, shadow entries replace the enforced entries of
    the same entities.

    Replication throttles (KIP-73) are part of the table, so that every store keeps them with the quotas. They
    have no mode: `in_shadow` does not change them.
    """

    __slots__ = (
        "_all_in_shadow",
        "_keys",
        "_limits",
        "_options",
        "_paced",
        "_shadow",
        "_shadow_limits",
        "_shadow_options",
        "_topics",
        "_values",
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
    ) -> None:
        """Begin with these values (units per second, or percent of one thread), options and throttles.
        `pacing` is the default of entries without pacing. Raises ValueError if a value is not a finite number
        above 0.
        """
        self._values = dict(values or {})
        self._shadow = dict(shadow or {})
        for (entity, key), value in chain(self._values.items(), self._shadow.items()):
            if not 0 < value < math.inf:
                raise ValueError(f"{key.value} of {entity} must be a finite number above 0, not {value}")
        self._options = _kept(options, self._values)
        self._shadow_options = _kept(shadow_options, self._shadow)
        self.pacing = pacing
        """Kind of limiter (Kafka's or smooth) of byte rates whose entries set no pacing."""
        self.replication = replication
        """Replication throttles of brokers and topics (KIP-73)."""
        self._keys = frozenset(key for _entity, key in chain(self._values, self._shadow))
        self._limits: dict[QuotaKey, Limits] = {}
        self._shadow_limits: dict[QuotaKey, Limits] = {}
        self._topics: dict[tuple[QuotaKey, bool], Mapping[str, float]] = {}
        self._all_in_shadow: QuotaTable | None = None
        self._paced: QuotaTable | None = None
        self.is_prepared = False
        """True once `prepared` has run. Limits that are equal to those of the former table are then the same
        objects, so that a comparison by `is` finds the changed limits.
        """

    @property
    def values(self) -> Mapping[Quota, float]:
        """Enforced values, read-only: (entity, key) → value, in the order of configuration."""
        return MappingProxyType(self._values)

    @property
    def shadow(self) -> Mapping[Quota, float]:
        """Values of shadow entries, which are counted but not enforced: (entity, key) → value. Read-only."""
        return MappingProxyType(self._shadow)

    def options(self, *, shadow: bool = False) -> Mapping[Quota, Options]:
        """Return the options of enforced values, or of shadow values: (entity, key) → options. Read-only;
        values without options are missing.
        """
        return MappingProxyType(self._shadow_options if shadow else self._options)

    def options_of(self, entity: Entity, *, shadow: bool = False) -> Options:
        """Return the options of an entity's enforced entry, or of its shadow entry."""
        options = self._shadow_options if shadow else self._options
        if not options:
            return PLAIN
        return next((options[entity, key] for key in keys_of(entity) if (entity, key) in options), PLAIN)

    def entities(self) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
        """Yield each entity that has enforced values, with key → value."""
        return _grouped(self._values)

    def shadow_entities(self) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
        """Yield each entity that has shadow values, with key → value."""
        return _grouped(self._shadow)

    def limits(self, key: QuotaKey) -> Limits:
        """Return the enforced limits of one key, prepared for lookup at the first call."""
        limits = self._limits.get(key)
        if limits is None:
            options = _by_entity(self._options, key, is_shadow=False)
            limits = self._limits[key] = Limits(_chosen(self._values, key), (), options, self.pacing)
        return limits

    def shadow_limits(self, key: QuotaKey) -> Limits:
        """Return the limits of one key as if shadow entries were enforced and replaced enforced entries;
        prepared for lookup at the first call.

        The caller must ignore each looked-up `Limit` whose `is_shadow` is False: the limit of an enforced
        entry. If the key has no shadow entry, the result has no limits.
        """
        limits = self._shadow_limits.get(key)
        if limits is None:
            shadow = list(_chosen(self._shadow, key))
            options = {
                **_by_entity(self._options, key, is_shadow=False),
                **_by_entity(self._shadow_options, key, is_shadow=True),
            }
            limits = Limits(_chosen(self._values, key), shadow, options, self.pacing) if shadow else NONE
            self._shadow_limits[key] = limits
        return limits

    def entry_of(self, key: QuotaKey, tags: Tags, *, shadow: bool = False) -> Entity | None:
        """Return the entity of the entry that limits the clients that share `tags`, by enforced entries or as
        in `shadow_limits`; None if no entry does.
        """
        return (self.shadow_limits(key) if shadow else self.limits(key)).entry_of(tags)

    def topics(self, key: QuotaKey, *, shadow: bool = False) -> Mapping[str, float]:
        """Return topic → rate (bytes/s), of enforced entries or of shadow entries; computed at the first
        call.
        """
        topics = self._topics.get((key, shadow))
        if topics is None:
            chosen = _chosen(self._shadow if shadow else self._values, key)
            topics = {entity.topic: rate for entity, rate in chosen if entity.topic is not None}
            self._topics[key, shadow] = topics
        return topics

    def prepared(self, before: QuotaTable) -> QuotaTable:
        """Prepare all limits for lookup, and return this table. Any thread may call this before other threads
        use the table: 100,000 entries take half a second.

        Limits that are equal in the former table `before` become the same objects as there, so that limiters
        with these limits need no update.
        """
        if not self.is_prepared:
            for key in QuotaKey:
                self._limits[key] = _old_if_same(self.limits(key), before.limits(key))
                self._shadow_limits[key] = _old_if_same(self.shadow_limits(key), before.shadow_limits(key))
            for key in _OF_TOPICS:
                self.topics(key)
                self.topics(key, shadow=True)
            self.is_prepared = True
        return self

    def altered(
        self, changes: Mapping[Quota, float | None], *, shadow: bool = False, options: Options | None = None
    ) -> QuotaTable:
        """Return a table with changed values (None removes a value) of enforced entries or of shadow entries.
        The changed entries get `options`, or keep their own if `options` is None. Raises ValueError if a
        value is not a finite number above 0.
        """
        merged = {**(self._shadow if shadow else self._values), **changes}
        kept = {quota: value for quota, value in merged.items() if value is not None}
        said = dict(self._shadow_options if shadow else self._options)
        for entity in {entity for entity, _key in changes}:
            its = self.options_of(entity, shadow=shadow) if options is None else options
            said.update({(entity, key): its for key in keys_of(entity)})
        throttles = self.replication
        if shadow:
            return QuotaTable(self._values, kept, self._options, said, self.pacing, replication=throttles)
        return QuotaTable(kept, self._shadow, said, self._shadow_options, self.pacing, replication=throttles)

    def replication_altered(self, changes: Mapping[ConfigKey, str | None]) -> QuotaTable:
        """Return a table with changed replication throttles (None removes one), and the same quotas. Raises
        ValueError for a throttle that does not exist, or a value of another form.
        """
        return QuotaTable(
            self._values,
            self._shadow,
            self._options,
            self._shadow_options,
            self.pacing,
            replication=self.replication.altered(changes),
        )

    def in_shadow(self) -> QuotaTable:
        """Return a table in which every entry is a shadow entry (counted, not enforced), made at the first
        call. An enforced entry is left out if its entity already has a shadow entry for the same quota.
        """
        if self._all_in_shadow is None:
            enforced = {quota: its for quota, its in self._options.items() if quota not in self._shadow}
            self._all_in_shadow = QuotaTable(
                None,
                {**self._values, **self._shadow},
                None,
                {**enforced, **self._shadow_options},
                self.pacing,
                replication=self.replication,
            )
        return self._all_in_shadow

    def paced(self, pacing: Pacing) -> QuotaTable:
        """Return a table with the same quotas, in which byte rates without a pacing get `pacing`. The new
        table is made at the first call and kept.
        """
        if self.pacing is pacing:
            return self
        if self._paced is None:
            self._paced = QuotaTable(
                self._values,
                self._shadow,
                self._options,
                self._shadow_options,
                pacing,
                replication=self.replication,
            )
        return self._paced

    def has(self, key: QuotaKey) -> bool:
        """Return True if a value of this key is configured, enforced or in shadow."""
        return key in self._keys

    def __len__(self) -> int:
        """Return the number of configured values: enforced, in shadow, and of replication throttles."""
        return len(self._values) + len(self._shadow) + len(self.replication)

    def __eq__(self, other: object) -> bool:
        """Return True if both tables have the same quotas and replication throttles. 100,000 equal entries
        take up to half a second.
        """
        if self is other:
            return True
        if not isinstance(other, QuotaTable):
            return NotImplemented
        return (
            self._values == other._values
            and self._shadow == other._shadow
            and self._options == other._options
            and self._shadow_options == other._shadow_options
            and self.pacing is other.pacing
            and self.replication == other.replication
        )

    def __hash__(self) -> int:
        """Return the hash of the values; equal tables have equal hashes."""
        return hash((frozenset(self._values.items()), frozenset(self._shadow.items()), self.replication))

    def __repr__(self) -> str:
        """Return a text with all values and options, for test failures."""
        said = f"QuotaTable({self._values!r}, shadow={self._shadow!r}"
        if self._options or self._shadow_options:
            said += f", options={self._options!r}, shadow_options={self._shadow_options!r}"
        if self.pacing is not Pacing.KAFKA:
            said += f", pacing={self.pacing!r}"
        return f"{said}, replication={self.replication!r})" if len(self.replication) else f"{said})"


def _old_if_same(new: Limits, old: Limits) -> Limits:
    return old if new.same_as(old) else new


def _kept(options: Mapping[Quota, Options] | None, values: Mapping[Quota, float]) -> dict[Quota, Options]:
    """Return the options without those that equal the defaults, and without those of quotas that have no
    value in `values`.
    """
    return {quota: its for quota, its in (options or {}).items() if quota in values and its != PLAIN}


def _by_entity(
    options: Mapping[Quota, Options], key: QuotaKey, *, is_shadow: bool
) -> dict[tuple[Entity, bool], Options]:
    return {(entity, is_shadow): its for (entity, its_key), its in options.items() if its_key is key}


def _chosen(values: Mapping[Quota, float], key: QuotaKey) -> Iterator[tuple[Entity, float]]:
    return ((entity, value) for (entity, its_key), value in values.items() if its_key is key)


def _grouped(values: Mapping[Quota, float]) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
    grouped: dict[Entity, dict[QuotaKey, float]] = {}
    for (entity, key), value in values.items():
        grouped.setdefault(entity, {})[key] = value
    return iter(grouped.items())
