"""What clients have made of topics through Weir in the last seconds, for a broker's Metadata is late.

The controller answers when a topic is made; the brokers hear of it a moment later, several seconds when many
are made (measured: up to 13 s). Meanwhile a broker's Metadata does not tell what a mutation will cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

KEPT_MS: Final = 30_000
KEPT_MAX: Final = 10_000
"""Topics; the oldest go first."""


THERE_MS: Final = 1000
THERE_MAX: Final = 1000
"""Requests."""
THERE_BYTES_MAX: Final = 10_000
"""Of a request; larger ones are looked at each time."""


class Asked(NamedTuple):
    """A Metadata request, from its client-id on."""

    version: int
    request: bytes


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
        self._there_until_ms: dict[Asked, int] = {}
        self._known: dict[str, Known] = {}

    def learn(self, name: str, partitions: int, topic_id: UUID, now_ms: int) -> None:
        """A topic has this many partitions now, none if it is gone."""
        if not partitions:
            self._there_until_ms.clear()
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

    def are_there(self, asked: Asked, now_ms: int) -> bool:
        """Whether such a request could create nothing a moment ago, and so need not be looked at again.

        Topics that are deleted through Weir end that; those deleted past it do after a second.
        """
        return self._there_until_ms.get(asked, now_ms) > now_ms

    def note_there(self, asked: Asked, now_ms: int) -> None:
        """Such a request can create nothing now: all its topics are there, or it may not, or names none."""
        if len(asked.request) <= THERE_BYTES_MAX:
            if len(self._there_until_ms) >= THERE_MAX:
                self._there_until_ms.clear()
            self._there_until_ms[asked] = now_ms + THERE_MS

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)
