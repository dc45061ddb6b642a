"""What clients have made of topics through Weir in the last seconds, for a broker's Metadata is late.

The controller answers when a topic is made; the brokers hear of it a moment later, several seconds when many
are made (measured: up to 13 s). Meanwhile a broker's Metadata does not tell what a mutation will cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

KEPT_MS: Final = 30_000
KEPT_MAX: Final = 10_000
"""Topics; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Known:
    """A topic as it was left; without partitions if it was deleted."""

    partitions: int
    topic_id: UUID
    until_ms: int


class RecentTopics:
    """By name; one per process."""

    def __init__(self) -> None:
        """Begin with none."""
        self.deletions = 0
        """How many topics were deleted."""
        self._known: dict[str, Known] = {}

    def learn(self, name: str, partitions: int, topic_id: UUID, now_ms: int) -> None:
        """A topic has this many partitions now, none if it is gone."""
        self.deletions += not partitions
        self._known.pop(name, None)  # the latest comes last
        while self._known and len(self._known) >= KEPT_MAX:
            del self._known[next(iter(self._known))]
        self._known[name] = Known(partitions, topic_id, now_ms + KEPT_MS)

    def get(self, name: str, now_ms: int) -> Known | None:
        """What was learnt of a topic, if that was lately."""
        known = self._known.get(name)
        if known is not None and known.until_ms <= now_ms:
            del self._known[name]
            return None
        return known

    def named(self, topic_id: UUID, now_ms: int) -> str | None:
        """The name of a topic that was made lately and whose id is known."""
        for name, known in self._known.items():
            if known.topic_id == topic_id and known.until_ms > now_ms:
                return name
        return None

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)
