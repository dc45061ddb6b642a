"""Topics that were missing when a client asked for them, and who pays if they come (KIP-599)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from quotas import MutationLedger

EXPECTED_MS: Final = 30_000
"""How long a topic that was missing may take to come, at least."""
EXPECTED_MAX_EACH: Final = 1000
"""Of one payer."""
EXPECTED_MAX: Final = 100_000
"""Of all together; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A topic that may be on its way."""

    payer: MutationLedger
    until_ms: int
    paid: int = 0
    """Partitions of it that are paid for already."""


class MissingTopics:
    """Those that may be on their way, by name; one per cluster."""

    def __init__(self) -> None:
        """Begin with none."""
        self._expected: dict[str, Expected] = {}
        self._names: dict[MutationLedger, dict[str, None]] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._expected)

    def expect(self, names: Iterable[str], payer: MutationLedger, now_ms: int, paid: int = 0) -> int:
        """Remember who pays if these come; return how many of them this payer has no room left for."""
        left_out = 0
        for name in names:
            if self.expects(name, now_ms):
                continue  # the first who asked has brought it about
            self.came(name)
            own = self._names.setdefault(payer, {})
            if len(own) >= EXPECTED_MAX_EACH:
                left_out += 1
                continue
            if len(self._expected) >= EXPECTED_MAX:
                self.came(next(iter(self._expected)))
            own[name] = None
            self._expected[name] = Expected(payer, now_ms + EXPECTED_MS, paid)
        return left_out

    def expects(self, name: str, now_ms: int) -> bool:
        """Whether somebody pays if this topic comes."""
        known = self._expected.get(name)
        return known is not None and known.until_ms > now_ms

    def of(self, payer: MutationLedger) -> list[str]:
        """What this client has asked for that was not there. It is to be looked for."""
        return list(self._names.get(payer, ()))

    def came(self, name: str) -> Expected | None:
        """A topic is there: return who expected it, if someone did."""
        expected = self._expected.pop(name, None)
        if expected is not None:
            own = self._names[expected.payer]
            del own[name]
            if not own:
                del self._names[expected.payer]
        return expected

    def did_not_come(self, names: Iterable[str], now_ms: int) -> None:
        """Topics were looked for in vain: forget those that are not in time any more.

        Not earlier: who is silent for long is not to have them for nothing.
        """
        for name in names:
            expected = self._expected.get(name)
            if expected is not None and expected.until_ms <= now_ms:
                self.came(name)
