"""A worker sends the supervisor the charges of its clients.

The looks are timers of the reactor, not Trio tasks, because waking Trio costs 0.9 ms of CPU. A look comes 20
ms after the first turn of the reactor since the look before: 50 looks a second at nothing were 0.8 % of a
core. A worker that dies loses the charges since its latest look; with many used limiters, those of the time
until all were visited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from weir.proxy.net.reactor import Reactor
from weir.proxy.workers.charges import CHARGES_MAX, ChargeReader, LimiterCharge
from weir.proxy.workers.messages import Charges
from weir.quotas.sharing.shared import LOOK_MS

FAILED_MS: Final = 1000
"""Time (ms) until the next look after one that has failed."""


class ChargesSender:
    """Posts the increase of all limiters, in steps between which sockets are served."""

    def __init__(
        self,
        reactor: Reactor,
        charged: ChargeReader,
        post: Callable[[Charges], None],
        note: Callable[[list[LimiterCharge]], None],
    ) -> None:
        """Begin without looks. `post` sends a message to the supervisor; `note` counts the charges here."""
        self._reactor = reactor
        self._charged = charged
        self._post = post
        self._note = note
        self._stopped = False

    def start(self) -> None:
        """Look regularly from now on."""
        self._again()

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True

    def send_rest(self) -> Iterator[None]:
        """Look at everything now, in steps; the caller must exhaust the iterator."""
        yield from self._steps(everything=True)

    def _again(self, after_ms: int = LOOK_MS) -> None:
        if not self._stopped:
            self._reactor.call_at(self._reactor.now_ms + after_ms, self._begin, self._failed)

    def _begin(self) -> None:
        if not self._stopped:
            self._step(self._steps())

    def _step(self, steps: Iterator[None]) -> None:
        for _step in steps:
            self._reactor.later(lambda: self._step(steps), self._failed)
            return
        if self._charged.visits_all:
            self._reactor.on_turn.append(self._again)
        else:
            self._again()

    def _failed(self, _error: Exception) -> None:
        """Go on after an exception, which the reactor has reported."""
        self._again(FAILED_MS)

    def _steps(self, *, everything: bool = False) -> Iterator[None]:
        """Send the charges in steps. Each charge that was read is sent before the look pauses or fails: no
        other look finds it.
        """
        some: list[LimiterCharge] = []
        try:
            for charge in self._charged.look(self._reactor.now_ms, everything=everything):
                if charge is not None:
                    some.append(charge)
                if charge is None or len(some) == CHARGES_MAX:
                    found, some = some, []
                    self._send(found)
                if charge is None:
                    yield
        finally:
            self._send(some)

    def _send(self, some: list[LimiterCharge]) -> None:
        if some:
            self._post(Charges(some))
            self._note(some)
