"""Pending automatic creations: missing topics of Metadata requests, and the ledgers charged if they are
created (KIP-599).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from quotas import MutationLedger

PENDING_MS: Final = 30_000
"""Time (ms) that an automatic creation may take, at least."""
PENDING_MAX_EACH: Final = 1000
"""Number of pending creations per ledger."""
LOOKED_FOR_MAX: Final = 50
"""Number of pending creations that a request looks for: a look costs as much as the request itself."""
PENDING_MAX: Final = 100_000
"""Number of pending creations of all ledgers; the oldest are dropped first."""


@dataclass(frozen=True, slots=True)
class PendingCreation:
    """A topic that may be created soon."""

    ledger: MutationLedger
    until_ms: int
    charged: int = 0
    """Number of its partitions that are charged already."""


class PendingCreations:
    """Pending creations by topic; one instance per cluster."""

    def __init__(self) -> None:
        """Begin empty."""
        self._pending: dict[str, PendingCreation] = {}
        self._names: dict[MutationLedger, dict[str, None]] = {}

    def __len__(self) -> int:
        """Return the number of pending creations."""
        return len(self._pending)

    def add(self, names: Iterable[str], ledger: MutationLedger, now_ms: int, charged: int = 0) -> int:
        """Add topics, to be charged to this ledger if they are created; return the number of topics for which
        the ledger has no room.
        """
        without_room = 0
        for name in names:
            if self.expects(name, now_ms):
                continue  # the first request that names a topic creates it
            self.created(name)
            own = self._names.setdefault(ledger, {})
            if len(own) >= PENDING_MAX_EACH:
                without_room += 1
                continue
            if len(self._pending) >= PENDING_MAX:
                self.created(next(iter(self._pending)))
            own[name] = None
            self._pending[name] = PendingCreation(ledger, now_ms + PENDING_MS, charged)
        return without_room

    def expects(self, name: str, now_ms: int) -> bool:
        """Return True if the creation of this topic would be charged."""
        known = self._pending.get(name)
        return known is not None and known.until_ms > now_ms

    def number(self, ledger: MutationLedger) -> int:
        """Return the number of pending creations that would be charged to this ledger."""
        return len(self._names.get(ledger, {}))

    def looked_for(self, ledger: MutationLedger) -> list[str]:
        """Return topics whose creation is charged to this ledger: at most `LOOKED_FOR_MAX`, and others the
        next time.
        """
        own = self._names.get(ledger, {})
        names = list(islice(own, LOOKED_FOR_MAX))
        for name in names:
            own[name] = own.pop(name)
        return names

    def take(self, name: str, ledger: MutationLedger) -> PendingCreation | None:
        """Remove a topic that was created; return its entry if its creation is charged to this ledger."""
        pending = self._pending.get(name)
        return self.created(name) if pending is not None and pending.ledger == ledger else None

    def created(self, name: str) -> PendingCreation | None:
        """Remove a topic that was created; return its entry, if any."""
        pending = self._pending.pop(name, None)
        if pending is not None:
            own = self._names[pending.ledger]
            del own[name]
            if not own:
                del self._names[pending.ledger]
        return pending

    def expire(self, names: Iterable[str], now_ms: int) -> None:
        """Drop the entries of `names` that are older than `PENDING_MS`. The caller has found that these
        topics do not exist.

        Only such topics are dropped. Otherwise a client could avoid the charge by a pause.
        """
        for name in names:
            pending = self._pending.get(name)
            if pending is not None and pending.until_ms <= now_ms:
                self.created(name)
