"""API groups: usage is counted by group, because 90 API keys would need a record each."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ApiGroup(StrEnum):
    """Group of APIs with a similar purpose; usage records count requests by group."""

    PRODUCE = "produce"
    FETCH = "fetch"
    METADATA = "metadata"
    """Look-ups of topics, offsets, coordinators and versions by clients."""
    GROUPS = "groups"
    """Consumer and share groups: membership, commits."""
    TRANSACTIONS = "transactions"
    MUTATIONS = "mutations"
    """Creation and deletion of topics and partitions."""
    ADMIN = "admin"
    """Configuration, ACLs, quotas, reassignment: requests of operators' tools."""
    SECURITY = "security"
    """SASL and delegation tokens."""
    BROKERS = "brokers"
    """Requests between brokers and controllers."""
    OTHER = "other"
    """APIs that Weir does not know, because its schemas lack them."""


GROUPS: Final = tuple(ApiGroup)
"""All groups. The index of a group here is also its index in lists of counts."""
