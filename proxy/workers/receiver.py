"""A worker reads its link on the reactor, because waking Trio costs a millisecond of CPU: with two workers,
each would pay it for every look of the other at its charges.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

import trio

from weir.proxy.net.poll import READ
from weir.proxy.net.reactor import Reactor
from weir.proxy.workers.link import Link, LinkError, Received

Rest: TypeAlias = Callable[[], Awaitable[None]]
"""Coroutine function that obeys the rest of a message within Trio."""
Take: TypeAlias = Callable[[Received], Rest | None]
"""Function that obeys a message, or returns the rest."""


class Receiver:
    """Obeys the messages of a link, each before the next one is read."""

    def __init__(self, reactor: Reactor, link: Link, take: Take) -> None:
        """Begin before the first message."""
        self._reactor = reactor
        self._link = link
        self._take = take
        self._rests: Final = trio.open_memory_channel[Rest](math.inf)
        """At most one rest at a time: meanwhile no message is read."""
        self._ended: Exception | None = None

    async def run(self) -> None:
        """Obey messages until cancelled, or until one fails. Raises LinkError, and what `take` raises."""
        sending, rests = self._rests
        self._read()
        try:
            async for rest in rests:
                await rest()
                self._read()
        finally:
            sending.close()
            self._pause()
        if self._ended is not None:
            raise self._ended

    def _read(self) -> None:
        self._reactor.register(self._link.fileno(), READ, self._readable, self._fail)

    def _pause(self) -> None:
        with suppress(KeyError):  # it pauses already
            self._reactor.unregister(self._link.fileno())

    def _readable(self, _events: int) -> None:
        """Take one packet: the sockets of clients come between two of them."""
        try:
            received = self._link.receive_packet()
        except BlockingIOError:
            return
        except LinkError as error:
            self._fail(error)
            return
        rest = None if received is None else self._take(received)
        if rest is not None:
            self._pause()
            self._rests[0].send_nowait(rest)

    def _fail(self, error: Exception) -> None:
        self._ended = error
        self._pause()
        self._rests[0].close()
