"""Topics that clients recently created, grew or deleted through Weir: a broker's Metadata shows such changes
late.

The controller answers when it has created a topic. The brokers' Metadata shows the topic a moment after that
answer, or several seconds after it if there are many topics (measured: up to 13 s). Until then Metadata has
no number of partitions by which to charge a deletion.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from weir.protocol.values import ZERO_UUID

KEPT_MS: Final = 15_000
KEPT_MAX: Final = 10_000
"""Maximum number of recently changed topics that are kept; the oldest are dropped first."""


@dataclass(frozen=True, slots=True)
class Known:
    """A topic's state after its last change through Weir; `partitions` is 0 if the topic was deleted."""

    partitions: int
    topic_id: UUID
    """The topic's id; zero if unknown."""
    until_ms: int


class RecentTopics:
    """Topics that were recently changed through Weir, by name; one instance per cluster."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._names: dict[UUID, str] = {}

    def learn(self, name: str, partitions: int, topic_id: UUID, now_ms: int) -> None:
        """Record a topic's number of partitions after a change; 0 if the topic was deleted."""
        before = self._forget(name)  # re-inserted as the latest
        if topic_id == ZERO_UUID and before is not None:
            topic_id = before.topic_id
        while len(self._known) >= KEPT_MAX:
            self._forget(next(iter(self._known)))
        self._known[name] = Known(partitions, topic_id, now_ms + KEPT_MS)
        if topic_id != ZERO_UUID:
            self._names[topic_id] = name

    def get(self, name: str, now_ms: int) -> Known | None:
        """Return a topic's state after a recent change; None if the topic was not changed recently."""
        known = self._known.get(name)
        if known is not None and known.until_ms <= now_ms:
            self._forget(name)
            return None
        return known

    def named(self, topic_id: UUID) -> str | None:
        """Return the name of the recently changed topic with this id; None if there is no such topic."""
        return self._names.get(topic_id)

    def exists(self, name: str, now_ms: int) -> bool:
        """Return True if the topic was created or changed recently, and not deleted."""
        known = self.get(name, now_ms)
        return known is not None and known.partitions > 0

    def is_gone(self, name: str, now_ms: int) -> bool:
        """Return True if the topic was deleted recently."""
        known = self.get(name, now_ms)
        return known is not None and not known.partitions

    def __len__(self) -> int:
        """Return the number of recently changed topics that are kept."""
        return len(self._known)

    def _forget(self, name: str) -> Known | None:
        known = self._known.pop(name, None)
        if known is not None and self._names.get(known.topic_id) == name:
            del self._names[known.topic_id]
        return known
