"""A worker sends the supervisor the charges of its clients.

The looks are timers of the reactor, not Trio tasks: shared quotas are looked at every 20 ms, and waking Trio
costs 0.9 ms of CPU, so that an idle worker would use 4 % of a core. Nothing is posted if nothing was used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from weir.proxy.net.reactor import Reactor
from weir.proxy.workers.charges import CHARGES_MAX, SHARED_MS, Charge, Charged
from weir.proxy.workers.messages import Charges

FAILED_MS: Final = 1000
"""Time (ms) until the next look after one that has failed."""


class ChargesSender:
    """Posts the increase of all limiters, in steps between which sockets are served."""

    def __init__(
        self,
        reactor: Reactor,
        charged: Charged,
        post: Callable[[Charges], None],
        note: Callable[[list[Charge]], None],
    ) -> None:
        """Begin without looks. `post` sends a message to the supervisor; `note` counts the charges here."""
        self._reactor = reactor
        self._charged = charged
        self._post = post
        self._note = note

    def start(self) -> None:
        """Look regularly from now on."""
        for shared in (True, False):
            self._again(shared=shared)

    def send_rest(self) -> Iterator[None]:
        """Look at everything now, in steps; the caller must exhaust the iterator."""
        for shared in (True, False):
            yield from self._steps(shared=shared, everything=True)

    def _again(self, after_ms: int = 0, *, shared: bool) -> None:
        after_ms = after_ms or (SHARED_MS if shared else self._charged.own_ms)
        begin = partial(self._begin, shared=shared)
        self._reactor.call_at(self._reactor.now_ms + after_ms, begin, partial(self._failed, shared=shared))

    def _begin(self, *, shared: bool) -> None:
        self._step(self._steps(shared=shared), shared=shared)

    def _step(self, steps: Iterator[None], *, shared: bool) -> None:
        for _step in steps:
            next_step = partial(self._step, steps, shared=shared)
            self._reactor.later(next_step, partial(self._failed, shared=shared))
            return
        self._again(shared=shared)

    def _failed(self, _error: Exception, *, shared: bool) -> None:
        """Go on after an exception, which the reactor has reported."""
        self._again(FAILED_MS, shared=shared)

    def _steps(self, *, shared: bool, everything: bool = False) -> Iterator[None]:
        """Send the charges in steps. Each charge that was read is sent before the look pauses or fails: no
        other look finds it.
        """
        some: list[Charge] = []
        try:
            for charge in self._charged.look(self._reactor.now_ms, shared=shared, everything=everything):
                if charge is not None:
                    some.append(charge)
                if charge is None or len(some) == CHARGES_MAX:
                    found, some = some, []
                    self._send(found)
                if charge is None:
                    yield
        finally:
            self._send(some)

    def _send(self, some: list[Charge]) -> None:
        if some:
            self._post(Charges(some))
            self._note(some)
