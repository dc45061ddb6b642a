"""The quotas in force: those of the store, without the entries that have ended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from weir.proxy.control.stores.alterations import write_end
from weir.proxy.control.supervisor import Works, in_steps
from weir.quotas.table.ends import EntryEnd, EntryEnds

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from weir.proxy.control.quota_registry import QuotaRegistry
    from weir.quotas import QuotaTable

CLOCK_S: Final = 10.0
"""Maximum time (s) between two looks at the wall clock while an entry has an end: the clock may be set
forwards.
"""


class TableInForce:
    """Puts tables in force one after another, and takes entries out of force when they end."""

    def __init__(
        self, quota_registry: QuotaRegistry, stored: QuotaTable, now: Callable[[], datetime]
    ) -> None:
        """Begin with the registry's table in force, and `stored` in the store. `now` is the wall clock."""
        self._quota_registry = quota_registry
        self._stored = stored
        """The stored quotas that were last read."""
        self.table = quota_registry.table
        """The stored quotas without the entries that have ended."""
        self._now = now
        self._ends = EntryEnds()
        self._end_moved = trio.Event()
        """Set when the next end of an entry may be another one."""
        self._turn = trio.Lock()

    @property
    def ended(self) -> frozenset[EntryEnd]:
        """Entries in the store that have ended."""
        return self._ends.ended

    async def put(self, stored: QuotaTable | None = None) -> bool:
        """Put the stored quotas in force, except for entries that have ended; None for those of the latest
        call. Return False if the same table was in force already. Tables come into force in the order of the
        calls.
        """
        async with self._turn:
            self._stored = self._stored if stored is None else stored
            before, ended = self.table, self.ended
            in_force = await trio.to_thread.run_sync(self._prepare, self._stored)
            self._end_moved.set()
            if in_force is None:
                return False
            self.table = in_force
            self._quota_registry.use(in_force)
            await in_steps(self._quota_registry.refresh())
            for end in sorted(self.ended - ended, key=str):
                if quotas := before.rates_of(end.entity, shadow=end.is_shadow):
                    write_end(end, quotas)
            return True

    async def end_entries(self, works: Works) -> None:
        """Take entries out of force when their ends come, until cancelled."""
        while True:
            self._end_moved = trio.Event()
            next_end, wait_s = self._ends.next, math.inf
            if next_end is not None:
                wait_s = min(max((next_end - self._now()).total_seconds(), 0), CLOCK_S)
            with trio.move_on_after(wait_s) as waiting:
                await self._end_moved.wait()
            if waiting.cancelled_caught:
                await self.put()
                works()

    async def renew(self, in_shadow: bool | None = None) -> None:
        """Put the same table in force again, because `QuotaRegistry.derive` returns another one now. If
        `in_shadow` is given, put all entries in shadow mode, or with False each entry in its own mode.
        """
        async with self._turn:
            registry = self._quota_registry
            registry.in_shadow = registry.in_shadow if in_shadow is None else in_shadow
            await trio.to_thread.run_sync(registry.prepare, self.table)
            registry.use(self.table)
            await in_steps(registry.refresh())

    def _prepare(self, stored: QuotaTable) -> QuotaTable | None:
        """Return the table that comes into force, after the slow part of the preparation; None if it equals
        the one in force. Runs in a thread.
        """
        table = self._ends.in_force(stored, self._now())
        if not table.delta(self.table).number:
            return None
        self._quota_registry.prepare(table)
        return table
