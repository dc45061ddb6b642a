"""Followers of quota stores, and of sources of replication throttles."""

from __future__ import annotations

from collections.abc import Callable

import trio

from weir.proxy.control.replication.sources import SourceError
from weir.proxy.control.stores.store import StoreError
from weir.quotas import QuotaTable
from weir.quotas.replication.throttles import ReplicationThrottles

LONG_S = 60.0


class Followed:
    def __init__(self) -> None:
        self.tables: list[QuotaTable] = []
        self.failures: list[str] = []

    async def changed(self, table: QuotaTable) -> None:
        self.tables.append(table)

    def has_tables(self, number: int) -> bool:
        return len(self.tables) == number

    def failed(self, error: StoreError) -> None:
        self.failures.append(str(error))


class FollowedThrottles:
    def __init__(self) -> None:
        self.throttles: list[ReplicationThrottles] = []
        self.failures: list[str] = []

    async def changed(self, throttles: ReplicationThrottles) -> None:
        self.throttles.append(throttles)

    def failed(self, error: SourceError) -> None:
        self.failures.append(str(error))

    def has_told(self, number: int = 1) -> bool:
        return len(self.throttles) + len(self.failures) >= number


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what threads, or brokers at the other end of sockets, do: they have no event of Trio's."""
    with trio.fail_after(LONG_S):
        while not condition():  # noqa: ASYNC110  # as said
            await trio.sleep(0.002)
