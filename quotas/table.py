"""The quota table: everything that is configured, as one immutable value."""

from __future__ import annotations

import math
from enum import Enum
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from quotas.entities import Entity
from quotas.limits import NONE, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class QuotaKey(Enum):
    """What is limited, by Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    """Bytes per second."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    """Bytes per second."""
    REQUEST_PERCENTAGE = "request_percentage"
    """Percent of one thread's time."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions created, added or deleted per second."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """Connections per second."""


_OF_CLIENTS: Final = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)
_OF_TOPICS: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_OF_IPS: Final = (QuotaKey.CONNECTION_CREATION_RATE,)


def keys_of(entity: Entity) -> tuple[QuotaKey, ...]:
    """What can be limited for an entity: of an IP address its connections (KIP-612), of a topic byte rates,
    of users and client-ids everything but connections (KIP-546).
    """
    return _OF_IPS if entity.ip is not None else _OF_TOPICS if entity.topic is not None else _OF_CLIENTS


Quota: TypeAlias = tuple[Entity, QuotaKey]
"""What a value can be configured for."""


class QuotaTable:
    """An immutable set of configured quotas. Equal to a table with the same quotas, in whatever order.

    Enforced entries and shadow entries are independent: an entity may have either, or both. What is enforced
    does not see the shadow entries. They are laid over the enforced ones to find what would happen if they
    were enforced: that is counted, and nothing more.
    """

    __slots__ = (
        "_all_in_shadow",
        "_keys",
        "_limits",
        "_shadow",
        "_shadow_limits",
        "_topics",
        "_values",
        "is_prepared",
    )

    def __init__(
        self, values: Mapping[Quota, float] | None = None, shadow: Mapping[Quota, float] | None = None
    ) -> None:
        """Take a value for each (entity, key). Raises ValueError if one is not a finite number above 0."""
        self._values = dict(values or {})
        self._shadow = dict(shadow or {})
        for (entity, key), value in chain(self._values.items(), self._shadow.items()):
            if not 0 < value < math.inf:
                raise ValueError(f"{key.value} of {entity} must be a finite number above 0, not {value}")
        self._keys = frozenset(key for _entity, key in chain(self._values, self._shadow))
        self._limits: dict[QuotaKey, Limits] = {}
        self._shadow_limits: dict[QuotaKey, Limits] = {}
        self._topics: dict[tuple[QuotaKey, bool], Mapping[str, float]] = {}
        self._all_in_shadow: QuotaTable | None = None
        self.is_prepared = False
        """True once `prepared` has run: limits that did not change are then the same objects as before."""

    @property
    def values(self) -> Mapping[Quota, float]:
        """What is enforced. Read only: (entity, key) -> value, in the order in which they were configured."""
        return MappingProxyType(self._values)

    @property
    def shadow(self) -> Mapping[Quota, float]:
        """What is only counted; as `values`."""
        return MappingProxyType(self._shadow)

    def entities(self) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
        """Each entity with enforced values once, with these."""
        return _grouped(self._values)

    def shadow_entities(self) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
        """Each entity with shadow values once, with these."""
        return _grouped(self._shadow)

    def limits(self, key: QuotaKey) -> Limits:
        """The limits of one key that are enforced, made ready for lookup (once)."""
        limits = self._limits.get(key)
        if limits is None:
            limits = self._limits[key] = Limits(_chosen(self._values, key))
        return limits

    def shadow_limits(self, key: QuotaKey) -> Limits:
        """The limits of one key as if the shadow entries were enforced too, over the others; made ready once.

        Only a `Limit` with `is_shadow` counts. Nobody is limited if the key has no shadow entry.
        """
        limits = self._shadow_limits.get(key)
        if limits is None:
            shadow = list(_chosen(self._shadow, key))
            limits = Limits(_chosen(self._values, key), shadow) if shadow else NONE
            self._shadow_limits[key] = limits
        return limits

    def topics(self, key: QuotaKey, *, shadow: bool = False) -> Mapping[str, float]:
        """The rates of topics, enforced or in shadow, by topic; found once."""
        topics = self._topics.get((key, shadow))
        if topics is None:
            chosen = _chosen(self._shadow if shadow else self._values, key)
            topics = {entity.topic: rate for entity, rate in chosen if entity.topic is not None}
            self._topics[key, shadow] = topics
        return topics

    def prepared(self, before: QuotaTable) -> QuotaTable:
        """Make everything ready for lookup, and return this table. Any thread may do it, before others use
        the table: 100,000 entries take half a second.

        Limits that are the same in `before` become the same objects, so that their users have nothing to do.
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

    def altered(self, changes: Mapping[Quota, float | None], *, shadow: bool = False) -> QuotaTable:
        """A table with these values instead, None to remove one; of the enforced entries, or of the shadow
        entries. Raises ValueError for a bad value.
        """
        merged = {**(self._shadow if shadow else self._values), **changes}
        kept = {quota: value for quota, value in merged.items() if value is not None}
        return QuotaTable(self._values, kept) if shadow else QuotaTable(kept, self._shadow)

    def in_shadow(self) -> QuotaTable:
        """A table in which every entry is a shadow entry, made once. Where there are both, the shadow entry
        stays.
        """
        if self._all_in_shadow is None:
            self._all_in_shadow = QuotaTable(None, {**self._values, **self._shadow})
        return self._all_in_shadow

    def has(self, key: QuotaKey) -> bool:
        """Whether a value of this key is configured, enforced or not."""
        return key in self._keys

    def __len__(self) -> int:
        """How many values are configured, enforced or not."""
        return len(self._values) + len(self._shadow)

    def __eq__(self, other: object) -> bool:
        """Whether both tables configure the same. 100,000 equal entries take up to half a second."""
        if self is other:
            return True
        if not isinstance(other, QuotaTable):
            return NotImplemented
        return self._values == other._values and self._shadow == other._shadow

    def __hash__(self) -> int:
        """Equal tables hash equally."""
        return hash((frozenset(self._values.items()), frozenset(self._shadow.items())))

    def __repr__(self) -> str:
        """Name the values."""
        return f"QuotaTable({self._values!r}, shadow={self._shadow!r})"


def _old_if_same(new: Limits, old: Limits) -> Limits:
    return old if new.same_as(old) else new


def _chosen(values: Mapping[Quota, float], key: QuotaKey) -> Iterator[tuple[Entity, float]]:
    return ((entity, value) for (entity, its_key), value in values.items() if its_key is key)


def _grouped(values: Mapping[Quota, float]) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
    grouped: dict[Entity, dict[QuotaKey, float]] = {}
    for (entity, key), value in values.items():
        grouped.setdefault(entity, {})[key] = value
    return iter(grouped.items())
