"""What clients have made of topics through Weir in the last seconds, for a broker's Metadata is late.

The controller answers when a topic is made; the brokers hear of it a moment later, several seconds when many
are made (measured: up to 13 s). Meanwhile a broker's Metadata does not tell what a mutation will cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from protocol.values import ZERO_UUID

KEPT_MS: Final = 15_000
KEPT_MAX: Final = 10_000
"""Topics; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Known:
    """A topic as it was left; without partitions if it was deleted."""

    partitions: int
    topic_id: UUID
    """Zero if it is not known."""
    until_ms: int


class RecentTopics:
    """By name; one per cluster."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[str, Known] = {}
        self._names: dict[UUID, str] = {}

    def learn(self, name: str, partitions: int, topic_id: UUID, now_ms: int) -> None:
        """A topic has this many partitions now, none if it is gone."""
        before = self._forget(name)  # the latest comes last
        if topic_id == ZERO_UUID and before is not None:
            topic_id = before.topic_id
        while len(self._known) >= KEPT_MAX:
            self._forget(next(iter(self._known)))
        self._known[name] = Known(partitions, topic_id, now_ms + KEPT_MS)
        if topic_id != ZERO_UUID:
            self._names[topic_id] = name

    def get(self, name: str, now_ms: int) -> Known | None:
        """What was learnt of a topic, if that was lately."""
        known = self._known.get(name)
        if known is not None and known.until_ms <= now_ms:
            self._forget(name)
            return None
        return known

    def named(self, topic_id: UUID) -> str | None:
        """The name of the topic with this id, if that was learnt."""
        return self._names.get(topic_id)

    def exists(self, name: str, now_ms: int) -> bool:
        """Whether a topic was made, and left, lately."""
        known = self.get(name, now_ms)
        return known is not None and known.partitions > 0

    def is_gone(self, name: str, now_ms: int) -> bool:
        """Whether a topic was deleted lately."""
        known = self.get(name, now_ms)
        return known is not None and not known.partitions

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def _forget(self, name: str) -> Known | None:
        known = self._known.pop(name, None)
        if known is not None and self._names.get(known.topic_id) == name:
            del self._names[known.topic_id]
        return known
