"""What the sessions of one cluster have learnt about its topics, for the quota on partition mutations."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.handlers.mutations.harmless_requests import HarmlessRequests
from proxy.handlers.mutations.pending_creations import PendingCreations
from proxy.handlers.mutations.recent_topics import RecentTopics


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Shared by all sessions of a process."""

    strict_auto_creation: bool = False
    """Whether a client without tokens may not create topics by asking for them."""
    pending_creations: PendingCreations = field(default_factory=PendingCreations)
    recent_topics: RecentTopics = field(default_factory=RecentTopics)
    harmless_requests: HarmlessRequests = field(default_factory=HarmlessRequests)
