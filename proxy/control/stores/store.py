"""The interface of quota stores, from which quotas are read, and to which changes are written; and the health
of a store, for metrics and logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol, TypeAlias

import structlog

from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.proxy.outage import Outage
from weir.quotas import QuotaTable
from weir.quotas.table.options import Options

log = structlog.get_logger("weir.quotas")

Changed: TypeAlias = Callable[[QuotaTable], Awaitable[None]]
"""Coroutine function that a store calls with a new table. It puts the table in force, and returns once it is
in force.
"""

Result: TypeAlias = Literal["stored", "unchanged", "failed"]
RESULTS: Final[tuple[Result, ...]] = ("stored", "unchanged", "failed")
"""Possible results of an alteration. "unchanged": the store had the requested values already. "failed": the
store has not confirmed the change.
"""


class StoreError(Exception):
    """The store cannot be read or written now; the text is one line with the reason and the remedy."""


class UnfitError(StoreError):
    """The cluster or file can never serve as this store: Weir must not start."""


class QuotaStore(Protocol):
    """Place where quotas are stored: a file, a topic or the brokers. Trio tasks await the methods, which run
    slow work in threads.
    """

    @property
    def name(self) -> str:
        """Name in logs and metrics, such as `file`."""

    async def load(self) -> QuotaTable:
        """Return all stored quotas. Raises StoreError."""

    async def alter(
        self, changes: Changes, *, shadow: bool = False, options: Options | None = None
    ) -> QuotaTable:
        """Store the changes durably, and return all stored quotas. Raises StoreError.

        The changes apply to enforced entries, or with `shadow` to shadow entries. The altered entries get
        `options` (pacing, scope), or keep theirs if `options` is None.
        """

    async def alter_replication(self, changes: ReplicationChanges) -> QuotaTable:
        """Store the changed replication throttles durably, and return all stored quotas. Raises
        StoreError.
        """

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Await `changed` with each new table until cancelled; call `failed` with the error while the store
        cannot be read.

        Once the store can be read again, await `changed` even if the table is the same as before.
        """


class StoreHealth:
    """Health of the quota store for metrics: result of the latest read, time of the latest successful read,
    number of alterations by result, number of rejected requests.
    """

    def __init__(
        self,
        wall_clock_s: Callable[[], float],
        name: str = "file",
        foreign_records: Callable[[], int] = int,
    ) -> None:
        """Begin as after a successful read: Weir does not start if its first read fails."""
        self._wall_clock_s = wall_clock_s
        self.name = name
        """Name of the store in metrics, such as `file`."""
        self.foreign_records = foreign_records
        """Function that returns the number of records in the quota topic that have no header of a Weir; 0 if
        the store is no topic.
        """
        self.outage = Outage(
            log, "quotas not loaded, the last known stay in force", "quotas loaded again", wall_s=wall_clock_s
        )
        """Time since which the store cannot be read, and the reason."""
        self.last_good_s = wall_clock_s()
        """Unix time (s) of the latest successful read."""
        self.last_change_s = 0.0
        """Unix time (s) at which Weir last stored an alteration; 0 before the first one."""
        self.alterations: Counter[Result] = Counter()
        self.denied = 0
        """Number of quota requests that Weir rejected because the client is no admin."""
        self._denial_said_s = 0.0

    @property
    def last_was_good(self) -> bool:
        """True unless the latest read has failed."""
        return not self.outage

    def succeeded(self, quotas: int) -> bool:
        """Record that the store's quotas were read and put in force. Return True if the end of an outage was
        logged.
        """
        self.last_good_s = self._wall_clock_s()
        return self.outage.over(store=self.name, quotas=quotas)

    def note_alteration(self, result: Result) -> None:
        """Count an alteration by its result; record the time if it was stored."""
        self.alterations[result] += 1
        if result == "stored":
            self.last_change_s = self._wall_clock_s()

    def note_denied(self) -> bool:
        """Count a quota request that Weir rejected because its client is no admin. Return True if the
        rejection is to be logged: False if less than a second has passed since a rejection was last logged.
        """
        self.denied += 1
        now_s = self._wall_clock_s()
        say = abs(now_s - self._denial_said_s) >= 1
        if say:
            self._denial_said_s = now_s
        return say
