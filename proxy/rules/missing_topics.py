"""Topics that were missing when a client asked for them, and who pays if they come (KIP-599)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from quotas import MutationBudget

PENDING_MS: Final = 30_000
"""How long a topic that was missing may take to come, at least."""
PENDING_MAX: Final = 10_000
"""Of all clients together."""


@dataclass(slots=True)
class _Pending:
    payer: MutationBudget
    until_ms: int


class MissingTopics:
    """Those that may be on their way; one per process."""

    def __init__(self) -> None:
        """Begin with none."""
        self._pending: dict[str, _Pending] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._pending)

    def expect(self, names: Iterable[str], payer: MutationBudget, now_ms: int) -> int:
        """Remember who pays if these come; return how many of them there was no room for."""
        left_out = 0
        for name in names:
            if name in self._pending:
                continue  # the first who asked has brought it about
            if len(self._pending) >= PENDING_MAX and not self._forget_old(now_ms):
                left_out += 1
                continue
            self._pending[name] = _Pending(payer, now_ms + PENDING_MS)
        return left_out

    def of(self, payer: MutationBudget) -> list[str]:
        """What this client has asked for that was not there. It is to be looked for."""
        return [name for name, pending in self._pending.items() if pending.payer is payer]

    def came(self, name: str) -> MutationBudget | None:
        """A topic is there: return who pays, if someone is left to."""
        pending = self._pending.pop(name, None)
        return None if pending is None else pending.payer

    def did_not_come(self, names: Iterable[str], now_ms: int) -> None:
        """Topics were looked for in vain: forget those that are not in time any more.

        Not earlier: who is silent for long is not to have them for nothing.
        """
        for name in names:
            pending = self._pending.get(name)
            if pending is not None and pending.until_ms <= now_ms:
                del self._pending[name]

    def _forget_old(self, now_ms: int) -> bool:
        """Forget what has not come in time; whether there is room then."""
        gone = []
        for name, pending in self._pending.items():  # oldest first
            if pending.until_ms > now_ms:
                break
            gone.append(name)
        for name in gone:
            del self._pending[name]
        return len(self._pending) < PENDING_MAX
