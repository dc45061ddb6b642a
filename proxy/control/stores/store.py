"""A quota store: the source of the quota table, and the destination of changes; its health, for metrics and
logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol, TypeAlias

from proxy.handlers.quota_api.quota_admin import Changes
from quotas import QuotaTable

Changed: TypeAlias = Callable[[QuotaTable], Awaitable[None]]
"""Puts a table in force, and returns when it is."""

Result: TypeAlias = Literal["stored", "unchanged", "failed"]
RESULTS: Final[tuple[Result, ...]] = ("stored", "unchanged", "failed")
"""Results of an alteration; unchanged: the store had these values already."""


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


class StoreHealth:
    """The result of the latest read, the time of the latest successful one, and alterations."""

    def __init__(
        self,
        wall_clock_s: Callable[[], float],
        name: str = "file",
        foreign_records: Callable[[], int] = int,
    ) -> None:
        """Begin with a success: a process whose first read fails does not start."""
        self._wall_clock_s = wall_clock_s
        self.name = name
        """The store's name."""
        self.foreign_records = foreign_records
        """Returns the number of records of the quota topic that no Weir wrote."""
        self.last_was_good = True
        self.last_good_s = wall_clock_s()
        """Unix time (s) of the latest successful read."""
        self.last_change_s = 0.0
        """Unix time (s) of the latest change that Weir has stored; 0 if none."""
        self.alterations: Counter[Result] = Counter()
        self.denied = 0
        """Number of requests rejected because the client is no admin."""
        self._denial_said_s = 0.0

    def note(self, *, good: bool) -> None:
        """Note a read of the store."""
        self.last_was_good = good
        if good:
            self.last_good_s = self._wall_clock_s()

    def note_alteration(self, result: Result) -> None:
        """Note an alteration and its result."""
        self.alterations[result] += 1
        if result == "stored":
            self.last_change_s = self._wall_clock_s()

    def note_denied(self) -> bool:
        """Note a rejected request; return True if it is to be logged, at most once a second."""
        self.denied += 1
        now_s = self._wall_clock_s()
        say = abs(now_s - self._denial_said_s) >= 1
        if say:
            self._denial_said_s = now_s
        return say
