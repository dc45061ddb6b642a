"""A quota store: where the table comes from, where changes go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from proxy.handlers.quota_api.quota_admin import Changes
from quotas import QuotaTable

Changed: TypeAlias = Callable[[QuotaTable], Awaitable[None]]
"""Puts a table in force, and returns when it is."""


class StoreError(Exception):
    """The store cannot be read or written now; its text is one line that says why and what to do."""


class UnfitError(StoreError):
    """What is there cannot be such a store, now or later: a reason not to start."""


class QuotaStore(Protocol):
    """Where quotas live. Its methods are awaited in Trio tasks; slow work is theirs to put into threads."""

    @property
    def name(self) -> str:
        """For logs and metrics, such as `file`."""

    async def load(self) -> QuotaTable:
        """Return all that is stored. Raises StoreError."""

    async def alter(self, changes: Changes) -> QuotaTable:
        """Store the changes, durably, and return all that is stored then. Raises StoreError."""

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Await `changed` with each new table until cancelled, and `failed` while there is none to be had.

        A table that is the same as before tells that the store is to be had again.
        """
