"""Sharing with other Weirs, when workers serve the clients.

The supervisor sends and reads the reports. It sends the workers the charges of clients of other Weirs, and
whether reports get through. Each worker then applies the rules of `quotas.sharing` to its own limiters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from weir.proxy.control.quota_registry import UNSEEN, QuotaRegistry
from weir.proxy.control.slices import slices
from weir.proxy.workers.charges import LimiterCharge
from weir.proxy.workers.messages import Message, OthersUsed, SharingState
from weir.quotas.sharing.blindness import GivenBlindness, Sight
from weir.quotas.sharing.others import OthersCharge
from weir.quotas.sharing.shared import SharedLimiters

if TYPE_CHECKING:  # a worker starts without the clients of topics
    from weir.proxy.control.sharing.sharing import UsageSharing

LIMITERS_MAX: Final = 1000
"""Maximum number of limiters in a message."""


class SharingFollower:
    """The worker's side: absorbs charges of other Weirs; uses parts of limits while none is heard."""

    def __init__(self, registry: QuotaRegistry, now_ms: int) -> None:
        self._registry = registry
        self._blindness = GivenBlindness(now_ms)
        self._limiters = SharedLimiters(None, self._blindness, registry.memory_ms, registry.sample_ms)
        self._joined = UNSEEN

    def look(self, now_ms: int) -> None:
        """Share new quotas and limiters, and give limiters their parts. Call this every `LOOK_MS`."""
        if self._registry.stamp != self._joined:
            self._joined = self._registry.stamp
            for name, quotas, window_s in self._registry.shared():
                self._limiters.join(name, quotas, window_s)
        self._limiters.look(now_ms)

    def take(self, message: OthersUsed | SharingState, now_ms: int) -> None:
        """Take news of the supervisor."""
        if isinstance(message, SharingState):
            self._blindness.set(Sight(message.sight), message.weirs, now_ms - message.blind_ms)
            return
        found = {
            number: [
                OthersCharge(now_ms - age_ms, units, weirs, is_late)
                for age_ms, units, weirs, is_late in charges
            ]
            for number, charges in message.charges
        }
        self._limiters.absorb(found, now_ms)

    def note(self, charges: Iterable[LimiterCharge], now_ms: int) -> None:
        """Count the charges of clients of this Weir, at this worker or at another one. Charges with an age
        are those of a former process: limiters have them, and nobody uses them now.
        """
        for charge in charges:
            units = sum(units for age_ms, units in charge.used.charges if not age_ms)
            self._limiters.note_own(charge.used.quotas, charge.used.tags, units, now_ms)


class SharingSender:
    """The supervisor's side: sends the workers the news."""

    def __init__(
        self, sharing: UsageSharing, send: Callable[[Message], None], clock_ms: Callable[[], int]
    ) -> None:
        """Begin before the first news. `send` sends a message to all workers; `clock_ms` is the limiters'
        clock (ms).
        """
        self._sharing = sharing
        self._send = send
        self._clock_ms = clock_ms
        self._sent: tuple[Sight, int] | None = None
        sharing.on_absorb.append(self._send_charges)
        sharing.on_look.append(self._look)

    def state(self) -> SharingState:
        """Return the message to a new process."""
        blindness = self._sharing.blindness
        return SharingState(blindness.sight.value, blindness.weirs, blindness.blind_for_ms(self._clock_ms()))

    def _look(self) -> None:
        blindness = self._sharing.blindness
        now = blindness.sight, blindness.weirs
        if now != self._sent:
            self._sent = now
            self._send(self.state())

    def _send_charges(self, charges: Mapping[int, list[OthersCharge]]) -> None:
        now_ms = self._clock_ms()
        for some in slices(charges.items(), LIMITERS_MAX):
            self._send(OthersUsed([(number, _aged(found, now_ms)) for number, found in some]))


def _aged(charges: Iterable[OthersCharge], now_ms: int) -> list[tuple[int, float, int, bool]]:
    """Return charges as `OthersUsed` has them."""
    return [(max(now_ms - each.at_ms, 0), each.units, each.weirs, each.is_late) for each in charges]
