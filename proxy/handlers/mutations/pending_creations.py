"""Pending creations: missing topics in Metadata responses, which the broker may be creating automatically,
and the ledgers charged if the topics appear (KIP-599).
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from weir.quotas import MutationLedger

PENDING_MS: Final = 30_000
"""Time (ms) for which a missing topic is expected to appear. After that time, Weir drops the topic if the
broker's Metadata still lacks it.
"""
PENDING_MAX_EACH: Final = 1000
"""Maximum number of pending creations (missing topics that the broker may be creating) per ledger."""
LOOKED_FOR_MAX: Final = 50
"""Maximum number of pending creations that Weir looks for at the broker during one request of a client.
Looking for them costs as much as the request itself.
"""
PENDING_MAX: Final = 100_000
"""Maximum number of pending creations (missing topics that the broker may be creating) of all ledgers
together. When one more is added, the oldest is dropped.
"""


@dataclass(frozen=True, slots=True)
class PendingCreation:
    """A missing topic that the broker may be creating automatically, and the ledger charged if the topic
    appears.
    """

    ledger: MutationLedger
    until_ms: int
    charged: int = 0
    """Number of partitions of the topic that were charged before the topic appeared."""


@dataclass(frozen=True, eq=False, slots=True)
class Counted:
    """A request that may create topics, and that a broker has not answered."""

    ledger: MutationLedger
    topics: int
    """Number of topics that the request may create."""
    until_ms: int
    """Time (ms) after which the topics no longer count: the connection may have ended without an answer."""


class PendingCreations:
    """All pending creations of one cluster, by topic: missing topics that the broker may be creating
    automatically.
    """

    def __init__(self) -> None:
        self._pending: dict[str, PendingCreation] = {}
        self._names: dict[MutationLedger, dict[str, None]] = {}
        self._at_broker: dict[Counted, None] = {}
        """Requests that may create topics and that a broker has not answered, oldest first."""
        self._topics_at_broker: dict[MutationLedger, int] = {}
        """By ledger, sum of the topics of the requests in `_at_broker`."""

    def __len__(self) -> int:
        """Return the number of pending creations."""
        return len(self._pending)

    def add(self, names: Iterable[str], ledger: MutationLedger, now_ms: int, charged: int = 0) -> int:
        """Record missing topics that are charged to this ledger if the broker creates them. Return the number
        of topics that were not recorded, because the ledger has `PENDING_MAX_EACH` already.
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
        """Return True if the broker may still be creating this topic: Weir has recorded less than
        `PENDING_MS` ago that the topic is missing.
        """
        known = self._pending.get(name)
        return known is not None and known.until_ms > now_ms

    def forwarded(self, ledger: MutationLedger, topics: int, now_ms: int) -> Counted:
        """Count topics that a request of this ledger's clients may create, until `answered` gets the returned
        entry, or for `PENDING_MS`.
        """
        self._expire_unanswered(now_ms)
        counted = Counted(ledger, topics, now_ms + PENDING_MS)
        self._at_broker[counted] = None
        self._topics_at_broker[ledger] = self._topics_at_broker.get(ledger, 0) + topics
        return counted

    def answered(self, counted: Counted) -> None:
        """Stop counting an entry of `forwarded`: the broker has answered the request. No effect on an entry
        that counts no longer.
        """
        if counted in self._at_broker:
            del self._at_broker[counted]
            left = self._topics_at_broker.pop(counted.ledger, 0) - counted.topics
            if left:
                self._topics_at_broker[counted.ledger] = left

    def number(self, ledger: MutationLedger, now_ms: int) -> int:
        """Return the number of topics whose creation would be charged to this ledger: missing topics, and
        topics of requests that a broker has not answered.
        """
        self._expire_unanswered(now_ms)
        return len(self._names.get(ledger, {})) + self._topics_at_broker.get(ledger, 0)

    def _expire_unanswered(self, now_ms: int) -> None:
        """Stop counting requests that have been at a broker for longer than `PENDING_MS`, of all ledgers."""
        while self._at_broker:
            oldest = next(iter(self._at_broker))
            if oldest.until_ms > now_ms:
                return
            self.answered(oldest)

    def looked_for(self, ledger: MutationLedger) -> list[str]:
        """Return at most `LOOKED_FOR_MAX` topics that the broker may be creating and that this ledger pays
        for. The caller asks the broker for them. Topics returned now come last in the next calls.
        """
        own = self._names.get(ledger, {})
        names = list(islice(own, LOOKED_FOR_MAX))
        for name in names:
            own[name] = own.pop(name)
        return names

    def take(self, name: str, ledger: MutationLedger) -> PendingCreation | None:
        """Remove a topic that now exists from the pending topics, if this ledger is charged for its creation.
        Return the removed entry; None if nothing was removed.
        """
        pending = self._pending.get(name)
        return self.created(name) if pending is not None and pending.ledger == ledger else None

    def created(self, name: str) -> PendingCreation | None:
        """Remove a topic from the pending topics, because it was created or must be dropped. Return the
        removed entry; None if the topic was not pending.
        """
        pending = self._pending.pop(name, None)
        if pending is not None:
            own = self._names[pending.ledger]
            del own[name]
            if not own:
                del self._names[pending.ledger]
        return pending

    def expire(self, names: Iterable[str], now_ms: int) -> None:
        """Drop those of the topics `names` that have been pending for longer than `PENDING_MS`.

        Call this only with topics that the broker has just been asked for and that do not exist. If time
        alone dropped topics, a client could avoid the charge by a pause.
        """
        for name in names:
            pending = self._pending.get(name)
            if pending is not None and pending.until_ms <= now_ms:
                self.created(name)
