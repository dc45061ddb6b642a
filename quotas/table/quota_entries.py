"""QuotaEntries: the configured values of one mode, and their options."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from weir.quotas.table.immutable_map import ImmutableMap
from weir.quotas.table.options import PLAIN, Options
from weir.quotas.table.quota_delta import Changes, QuotaValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from weir.quotas.table.entities import Entity
    from weir.quotas.table.quota_table import Quota, QuotaKey


class QuotaEntries:
    """The values of enforced entries, or of shadow entries, with their options. Immutable."""

    __slots__ = ("_numbers", "options", "values")

    def __init__(
        self,
        values: Mapping[Quota, float] | None = None,
        options: Mapping[Quota, Options] | None = None,
    ) -> None:
        """Begin with these values (units per second, or percent of one thread), and those of the options that
        have a value and differ from the defaults. Raises ValueError if a value is not a finite number above
        0.
        """
        self.values: ImmutableMap[Quota, float] = ImmutableMap(values)
        """(Entity, key) → value, in the order of configuration."""
        _check(self.values.items())
        kept = {quota: its for quota, its in (options or {}).items() if quota in self.values and its != PLAIN}
        self.options: ImmutableMap[Quota, Options] = ImmutableMap(kept)
        """(Entity, key) → options, of values with other options than the defaults."""
        self._numbers: dict[QuotaKey, int] = Counter(key for _entity, key in self.values)

    def applied(self, changes: Changes) -> QuotaEntries:
        """Return the entries after these changes, at a cost that depends only on the number of changes.
        Raises ValueError if a value is not a finite number above 0.
        """
        if not changes:
            return self
        _check((quota, new.value) for quota, new in changes.items() if new is not None)
        made = QuotaEntries()
        made._numbers = dict(self._numbers)
        options: dict[Quota, Options | None] = {}
        for quota, new in changes.items():
            key = quota[1]
            made._numbers[key] = made._numbers.get(key, 0) + (new is not None) - (quota in self.values)
            if new is not None and new.options != PLAIN:
                options[quota] = new.options
            elif quota in self.options:
                options[quota] = None
        made.values = self.values.updated({quota: new and new.value for quota, new in changes.items()})
        made.options = self.options.updated(options)
        return made

    def get(self, quota: Quota) -> QuotaValue | None:
        """Return a value with its options; None if this entity has no such quota."""
        value = self.values.get(quota)
        return None if value is None else QuotaValue(value, self.options.get(quota, PLAIN))

    def has(self, key: QuotaKey) -> bool:
        """Return True if a value of this key is configured."""
        return self._numbers.get(key, 0) > 0

    def of(self, key: QuotaKey) -> dict[Entity, QuotaValue]:
        """Return all values of one key: entity → value."""
        options = self.options
        return {
            quota[0]: QuotaValue(value, options.get(quota, PLAIN) if options else PLAIN)
            for quota, value in self.values.items()
            if quota[1] is key
        }

    def topics(self, key: QuotaKey) -> ImmutableMap[str, float]:
        """Return topic → rate (bytes/s) of the entries of topics; for counts, topic prefix → number."""
        if not self.has(key):
            return ImmutableMap()
        named = ((entity, value) for (entity, its_key), value in self.values.items() if its_key is key)
        return ImmutableMap(
            {name: value for entity, value in named if (name := topic_of(entity)) is not None}
        )

    def by_entity(self) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
        """Yield each entity, with key → value."""
        grouped: dict[Entity, dict[QuotaKey, float]] = {}
        for (entity, key), value in self.values.items():
            grouped.setdefault(entity, {})[key] = value
        return iter(grouped.items())

    def __eq__(self, other: object) -> bool:
        """Return True if both have the same values and options."""
        if not isinstance(other, QuotaEntries):
            return NotImplemented
        return self is other or (self.values == other.values and self.options == other.options)

    def __hash__(self) -> int:
        return hash(frozenset(self.values.items()))


def topic_of(entity: Entity) -> str | None:
    """Return the topic, or the topic prefix, of an entity; None for other entities."""
    return entity.topic if entity.topic_prefix is None else entity.topic_prefix


def _check(values: Iterable[tuple[Quota, float]]) -> None:
    for (entity, key), value in values:
        if not 0 < value < math.inf:
            raise ValueError(f"{key.value} of {entity} must be a finite number above 0, not {value}")
