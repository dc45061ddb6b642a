"""API groups: usage is counted by these, for 90 API keys each would be a record of its own otherwise."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Group(StrEnum):
    """What kind of thing a request asks for."""

    PRODUCE = "produce"
    FETCH = "fetch"
    METADATA = "metadata"
    """Topics, offsets, coordinators, versions: what clients ask before and while they work."""
    GROUPS = "groups"
    """Consumer and share groups: membership, commits."""
    TRANSACTIONS = "transactions"
    MUTATIONS = "mutations"
    """Topics and partitions created or deleted: what controller_mutation_rate is for."""
    ADMIN = "admin"
    """Configuration, ACLs, quotas, reassignment: what operators' tools ask."""
    SECURITY = "security"
    """SASL and delegation tokens."""
    BROKERS = "brokers"
    """What brokers and controllers ask each other."""
    OTHER = "other"
    """APIs that Weir has no schema for."""


GROUPS: Final = tuple(Group)
"""All of them; a group's place here is its index wherever counts are kept in a list."""
