"""The quota table: everything that is configured, as one immutable value."""

from __future__ import annotations

import math
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from quotas.entities import Entity, Limits

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


Quota: TypeAlias = tuple[Entity, QuotaKey]
"""What a value can be configured for."""


class QuotaTable:
    """An immutable set of configured quotas. Equal to a table with the same quotas, in whatever order."""

    __slots__ = ("_limits", "_values")

    def __init__(self, values: Mapping[Quota, float] | None = None) -> None:
        """Take a value for each (entity, key). Raises ValueError if one is not a finite number above 0."""
        self._values = dict(values or {})
        for (entity, key), value in self._values.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{key.value} of {entity} must be a finite number above 0, not {value}")
        self._limits: dict[QuotaKey, Limits] = {}

    @property
    def values(self) -> Mapping[Quota, float]:
        """Read only: (entity, key) -> value, in the order in which they were configured."""
        return MappingProxyType(self._values)

    def entities(self) -> Iterator[tuple[Entity, dict[QuotaKey, float]]]:
        """Each entity once, with its values."""
        grouped: dict[Entity, dict[QuotaKey, float]] = {}
        for (entity, key), value in self._values.items():
            grouped.setdefault(entity, {})[key] = value
        return iter(grouped.items())

    def limits(self, key: QuotaKey) -> Limits:
        """The limits of one key, made ready for lookup (once)."""
        limits = self._limits.get(key)
        if limits is None:
            chosen = ((entity, value) for (entity, its_key), value in self._values.items() if its_key is key)
            limits = self._limits[key] = Limits(chosen)
        return limits

    def altered(self, changes: Mapping[Quota, float | None]) -> QuotaTable:
        """A table with these values instead, None to remove one. Raises ValueError for a bad value."""
        merged = {**self._values, **changes}
        return QuotaTable({quota: value for quota, value in merged.items() if value is not None})

    def __len__(self) -> int:
        """How many values are configured."""
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        """Whether both tables configure the same."""
        return self._values == other._values if isinstance(other, QuotaTable) else NotImplemented

    def __hash__(self) -> int:
        """Equal tables hash equally."""
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        """Name the values."""
        return f"QuotaTable({self._values!r})"
