"""Pending creations: missing topics in Metadata responses, which the broker may be creating automatically,
and the ledgers charged if the topics appear (KIP-599).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from weir.quotas import MutationLedger

PENDING_MS: Final = 30_000
"""Minimum time (ms) for which Weir expects a missing topic to be created."""
PENDING_MAX_EACH: Final = 1000
"""Maximum number of pending creations per ledger."""
LOOKED_FOR_MAX: Final = 50
"""Maximum number of pending creations that Weir looks for at the broker during one request, because looking
costs as much as the request itself.
"""
PENDING_MAX: Final = 100_000
"""Maximum number of pending creations of all ledgers; at more, the oldest is dropped."""


@dataclass(frozen=True, slots=True)
class PendingCreation:
    """A missing topic that the broker may be creating automatically, and the ledger charged if the topic
    appears.
    """

    ledger: MutationLedger
    until_ms: int
    charged: int = 0
    """Number of the topic's partitions that were charged already."""


class PendingCreations:
    """All pending creations of one cluster, by topic: missing topics that the broker may be creating
    automatically.
    """

    def __init__(self) -> None:
        """Begin without pending creations."""
        self._pending: dict[str, PendingCreation] = {}
        self._names: dict[MutationLedger, dict[str, None]] = {}

    def __len__(self) -> int:
        """Return the number of pending creations."""
        return len(self._pending)

    def add(self, names: Iterable[str], ledger: MutationLedger, now_ms: int, charged: int = 0) -> int:
        """Add missing topics, which are charged to this ledger if the broker creates them. Return the number
        of topics that were not added, because the ledger has `PENDING_MAX_EACH` already.
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
        """Return True if this topic is pending and was added less than `PENDING_MS` ago."""
        known = self._pending.get(name)
        return known is not None and known.until_ms > now_ms

    def number(self, ledger: MutationLedger) -> int:
        """Return the number of pending creations that would be charged to this ledger."""
        return len(self._names.get(ledger, {}))

    def looked_for(self, ledger: MutationLedger) -> list[str]:
        """Return at most `LOOKED_FOR_MAX` pending topics of this ledger, to be looked for at the broker. The
        next call begins with the others.
        """
        own = self._names.get(ledger, {})
        names = list(islice(own, LOOKED_FOR_MAX))
        for name in names:
            own[name] = own.pop(name)
        return names

    def take(self, name: str, ledger: MutationLedger) -> PendingCreation | None:
        """Remove a topic that now exists, if its creation is charged to this ledger; return its entry, else
        None.
        """
        pending = self._pending.get(name)
        return self.created(name) if pending is not None and pending.ledger == ledger else None

    def created(self, name: str) -> PendingCreation | None:
        """Remove a topic from the pending ones, because it was created or is dropped; return its entry, None
        if it was not pending.
        """
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
