"""Replication throttles in the table of Weir's quota store (`replication_throttles = "weir"`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from weir.proxy.control.replication.sources import Changed, SourceError

if TYPE_CHECKING:
    from weir.proxy.control.quota_registry import QuotaRegistry
    from weir.quotas import QuotaTable


class TableSource:
    """The throttles of the quota registry's table; implements `sources.ThrottleSource`."""

    name = "quota table"

    def __init__(self, registry: QuotaRegistry) -> None:
        self._registry = registry
        self._altered = trio.Event()
        registry.on_update.append(self._updated)

    def altered(self) -> None:
        """Do nothing: the registry tells each new table."""

    def _updated(self, _table: QuotaTable) -> None:
        self._altered.set()

    async def follow(self, changed: Changed, _failed: Callable[[SourceError], None]) -> None:
        """Await `changed` with the throttles of each new table, until cancelled."""
        while True:
            self._altered = trio.Event()
            await changed(self._registry.in_force.replication)
            await self._altered.wait()
