"""A quota store: the source of the quota table, and the destination of changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from proxy.handlers.quota_api.quota_admin import Changes
from quotas import QuotaTable

Changed: TypeAlias = Callable[[QuotaTable], Awaitable[None]]
"""Puts a table in force, and returns when it is."""


class StoreError(Exception):
    """The store cannot be read or written now; the text is one line with the reason and the remedy."""


class UnfitError(StoreError):
    """The cluster or file cannot serve as this store, now or later: Weir must not start."""


class QuotaStore(Protocol):
    """A store of quotas. Its methods are awaited in Trio tasks; they run slow work in threads."""

    @property
    def name(self) -> str:
        """The name in logs and metrics, such as `file`."""

    async def load(self) -> QuotaTable:
        """Return all stored quotas. Raises StoreError."""

    async def alter(self, changes: Changes) -> QuotaTable:
        """Store the changes, durably; return all stored quotas. Raises StoreError."""

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Await `changed` with each new table until cancelled; call `failed` while the store cannot be read.

        An unchanged table after a failure means that the store can be read again.
        """
