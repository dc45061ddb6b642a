"""API groups: usage is counted by group, because 90 API keys would need a record each."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Group(StrEnum):
    """The kind of a request."""

    PRODUCE = "produce"
    FETCH = "fetch"
    METADATA = "metadata"
    """Topics, offsets, coordinators, versions: requests that clients send before and during their work."""
    GROUPS = "groups"
    """Consumer and share groups: membership, commits."""
    TRANSACTIONS = "transactions"
    MUTATIONS = "mutations"
    """Creation and deletion of topics and partitions, which controller_mutation_rate limits."""
    ADMIN = "admin"
    """Configuration, ACLs, quotas, reassignment: requests of operators' tools."""
    SECURITY = "security"
    """SASL and delegation tokens."""
    BROKERS = "brokers"
    """Requests between brokers and controllers."""
    OTHER = "other"
    """APIs that the schemas lack."""


GROUPS: Final = tuple(Group)
"""All groups; counts kept in lists use a group's index here."""
