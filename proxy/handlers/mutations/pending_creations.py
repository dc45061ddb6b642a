"""Topics that were missing when a client asked for them, and who pays if they come (KIP-599)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from quotas import MutationLedger

PENDING_MS: Final = 30_000
"""How long a topic that was missing may take to come, at least."""
PENDING_MAX_EACH: Final = 1000
"""Of one ledger."""
PENDING_MAX: Final = 100_000
"""Of all together; the oldest go first."""


@dataclass(frozen=True, slots=True)
class PendingCreation:
    """A topic that may be on its way."""

    ledger: MutationLedger
    until_ms: int
    paid: int = 0
    """Partitions of it that are paid for already."""


class PendingCreations:
    """Those that may be on their way, by name; one per cluster."""

    def __init__(self) -> None:
        """Begin with none."""
        self._pending: dict[str, PendingCreation] = {}
        self._names: dict[MutationLedger, dict[str, None]] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._pending)

    def add(self, names: Iterable[str], ledger: MutationLedger, now_ms: int, paid: int = 0) -> int:
        """Remember who pays if these come; return how many of them this ledger has no room left for."""
        without_room = 0
        for name in names:
            known = self._pending.get(name)
            if known is not None and known.until_ms > now_ms:
                continue  # the first who asked has brought it about
            self.created(name)
            own = self._names.setdefault(ledger, {})
            if len(own) >= PENDING_MAX_EACH:
                without_room += 1
                continue
            if len(self._pending) >= PENDING_MAX:
                self.created(next(iter(self._pending)))
            own[name] = None
            self._pending[name] = PendingCreation(ledger, now_ms + PENDING_MS, paid)
        return without_room

    def of(self, ledger: MutationLedger) -> list[str]:
        """What this client has asked for that was not there. It is to be looked for."""
        return list(self._names.get(ledger, ()))

    def created(self, name: str) -> PendingCreation | None:
        """A topic is there: return who pending it, if someone did."""
        pending = self._pending.pop(name, None)
        if pending is not None:
            own = self._names[pending.ledger]
            del own[name]
            if not own:
                del self._names[pending.ledger]
        return pending

    def expire(self, names: Iterable[str], now_ms: int) -> None:
        """Topics were looked for in vain: forget those that are not in time any more.

        Not earlier: who is silent for long is not to have them for nothing.
        """
        for name in names:
            pending = self._pending.get(name)
            if pending is not None and pending.until_ms <= now_ms:
                self.created(name)
