"""Check if clients can be served now; if not, tell the reason.

A check asks the brokers, at most once in `CHECK_S`: usually one broker, more if the first does not answer at
once. A broker that closes the connection counts as reachable, because brokers that require SASL do so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import trio

from weir.proxy.addresses import Address
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.discovery import DiscoveryError, discover
from weir.proxy.server.server import Server

CHECK_S: Final = 5.0
"""Time (s) for which the result of a check is reused."""
PATIENCE_S: Final = 3.0
"""Maximum time (s) of a check."""
STAGGER_S: Final = 0.02
"""Time (s) to wait for a broker before the next broker is asked too."""
REASONS_MAX: Final = 3


class Readiness:
    """Tells if the process can serve clients: not while Weir starts, not while Weir drains its connections to
    stop, and in between only if a broker can be reached.
    """

    def __init__(self, server: Server, listening: trio.Event) -> None:
        """Begin without a result. `listening` is an event that is set once clients can connect."""
        self._server = server
        self._listening = listening
        self._checking = trio.Lock()
        self._checked_s = -math.inf
        self._unreachable: str | None = None

    async def problem(self) -> str | None:
        """Return the reason why clients cannot be served; None if they can. Ask the brokers if the last
        result is older than `CHECK_S`.
        """
        if self._server.stopping:
            return "draining"
        if not self._listening.is_set():
            return "starting"
        async with self._checking:
            if trio.current_time() - self._checked_s >= CHECK_S:
                known, configured = self._server.address_book.nodes.values(), self._server.config.upstream
                self._unreachable = await _unreachable(
                    dict.fromkeys([*known, *configured]), Access.of(self._server.config)
                )
                self._checked_s = trio.current_time()
        return self._unreachable


async def _unreachable(addresses: Iterable[Address], access: Access) -> str | None:
    """Ask the brokers until one answers, and return None. A broker that closes the connection counts too,
    because it may require SASL. Return the reasons if no broker answers.
    """
    failures: list[str] = []
    found = False

    async def ask(address: Address) -> None:
        nonlocal found
        try:
            await discover([address], PATIENCE_S, access)
        except DiscoveryError as error:
            if error.foreign or not error.reachable:
                failures.append(str(error))
                return
        found = True
        asking.cancel_scope.cancel()

    with trio.move_on_after(PATIENCE_S):
        async with trio.open_nursery() as asking:
            for address in addresses:
                asking.start_soon(ask, address)
                await trio.sleep(STAGGER_S)
    if found:
        return None
    said = "; ".join(failures[:REASONS_MAX]) or f"no answer within {PATIENCE_S:g} s"
    return f"no upstream broker could be reached: {said}"
