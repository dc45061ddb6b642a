"""What the sessions of one cluster have learnt about its topics, for the quota on partition mutations."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.rules.harmless_requests import HarmlessRequests
from proxy.rules.missing_topics import MissingTopics
from proxy.rules.recent_topics import RecentTopics


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Shared by all sessions of a process."""

    strict_auto_creation: bool = False
    """Whether a client without tokens may not create topics by asking for them."""
    missing_topics: MissingTopics = field(default_factory=MissingTopics)
    recent_topics: RecentTopics = field(default_factory=RecentTopics)
    harmless_requests: HarmlessRequests = field(default_factory=HarmlessRequests)
