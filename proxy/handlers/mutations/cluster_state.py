"""Facts about the topics of one cluster: their names by id, and recent changes, pending automatic creations
and Metadata requests that recently could not create a topic, which partition mutation quotas need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from weir.proxy.handlers.mutations.pending_creations import PendingCreations
from weir.proxy.handlers.mutations.recent_topics import RecentTopics
from weir.proxy.handlers.old_reads.old_reads import OldReadAge
from weir.proxy.handlers.topic_counts.counted_topics import CountedTopics
from weir.proxy.handlers.topics.names_by_id import NamesById, UnnamedTopics

HARMLESS_MS: Final = 1000
"""Time (ms) for which Weir remembers that a Metadata request could not create a topic, and does not decode an
equal request.
"""
HARMLESS_MAX: Final = 1000
"""Maximum number of Metadata requests that `HarmlessRequests` keeps. When one more is added, all others are
removed.
"""
HARMLESS_BYTES_MAX: Final = 10_000
"""Maximum length (bytes) of a Metadata request that Weir remembers in `HarmlessRequests`, because it could
not create a topic. A longer request is not remembered, and is decoded whenever it is sent.
"""


Asked: TypeAlias = tuple[int, str, bytes]
"""Key by which an equal Metadata request is recognised: its version, its client's principal, and its bytes
from the client-id on. A plain tuple, because each Metadata request makes one.
"""


class HarmlessRequests:
    """Metadata requests that recently could not create a topic. For a second, Weir forwards an equal request
    without decoding it. One object per cluster.
    """

    def __init__(self) -> None:
        self._until_ms: dict[Asked, int] = {}

    def has(self, asked: Asked, now_ms: int) -> bool:
        """Return True if an equal request was added in the last second, and no topic was deleted since then.
        Such a request can create no topic, and need not be decoded.
        """
        return self._until_ms.get(asked, now_ms) > now_ms

    def add(self, asked: Asked, now_ms: int) -> None:
        """Record that a request can create no topic now: all its topics exist, or its client lacks the
        permission, or the request lists no topics.
        """
        _version, _user, request = asked
        if len(request) <= HARMLESS_BYTES_MAX:
            if len(self._until_ms) >= HARMLESS_MAX:
                self._until_ms.clear()
            self._until_ms[asked] = now_ms + HARMLESS_MS

    def forget(self) -> None:
        """Forget all requests, because a topic was deleted: a request that names it could now create it
        again.
        """
        self._until_ms.clear()


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Facts about the topics of one cluster. All connections of a process share the object."""

    pending_creations: PendingCreations = field(default_factory=PendingCreations)
    recent_topics: RecentTopics = field(default_factory=RecentTopics)
    harmless_requests: HarmlessRequests = field(default_factory=HarmlessRequests)
    names_by_id: NamesById = field(default_factory=NamesById)
    unnamed_topics: UnnamedTopics = field(default_factory=UnnamedTopics)
    counted_topics: CountedTopics = field(default_factory=CountedTopics)
    old_read_age: OldReadAge = field(default_factory=OldReadAge)

    def learn(self, topic: str, partitions: int, topic_id: UUID, now_ms: int) -> None:
        """Record a topic's present number of partitions; 0 if it was deleted."""
        self.recent_topics.learn(topic, partitions, topic_id, now_ms)
        if not partitions:
            self.harmless_requests.forget()
