"""Topics of one cluster, as far as partition mutation quotas need them."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.handlers.mutations.harmless_requests import HarmlessRequests
from proxy.handlers.mutations.pending_creations import PendingCreations
from proxy.handlers.mutations.recent_topics import RecentTopics


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Shared by all connections of a process."""

    strict_auto_creation: bool = False
    """True if clients with a negative balance may not create topics by Metadata requests."""
    pending_creations: PendingCreations = field(default_factory=PendingCreations)
    recent_topics: RecentTopics = field(default_factory=RecentTopics)
    harmless_requests: HarmlessRequests = field(default_factory=HarmlessRequests)
