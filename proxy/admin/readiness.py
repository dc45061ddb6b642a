"""Check if clients can be served now; if not, tell the reason.

A check asks the brokers, at most once in `CHECK_S`: usually one broker, more if the first does not answer at
once. A broker that closes the connection counts as reachable, because brokers that require SASL do so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import trio

from weir.proxy.addresses import Address
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.discovery import DiscoveryError, discover
from weir.proxy.control.events.health import Condition, problem
from weir.proxy.net.race import Race
from weir.proxy.server.server import Server

CHECK_S: Final = 5.0
"""Time (s) for which the result of a check is reused."""
KNOWN_S: Final = 60.0
"""Time (s) after a check for which its result counts as a condition: probes that ask once a minute, or more
often, keep the condition.
"""
PATIENCE_S: Final = 3.0
"""Maximum time (s) of a check."""
STAGGER_S: Final = 0.02
"""Time (s) to wait for a broker before the next broker is asked too."""
REASONS_MAX: Final = 3
UNKNOWN: Final = (
    "no broker is known, so only the bootstrap listener serves clients: set upstream_sasl_mechanism or "
    "state_dir, or connect one client"
)
"""Reason while the brokers do not list themselves to Weir, because they require a login, and no client has
learned them yet. Clients that remember addresses of brokers at Weir are refused.
"""


class Readiness:
    """Tells if the process can serve clients. It cannot while Weir starts or drains. In between, a broker
    must be reachable, the brokers' listeners must be open, and no broker of the cluster may be left out of
    responses.
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
        if left_out := self._server.address_book.left_out.node_ids():
            return f"no listener for brokers {', '.join(map(str, left_out))}, see the log for the remedy"
        async with self._checking:
            if trio.current_time() - self._checked_s >= CHECK_S:
                config = self._server.config
                addresses = self._server.address_book.candidates(config.upstream)
                self._unreachable = await _unreachable(addresses, Access.of(config))
                self._checked_s = trio.current_time()
        return self._latest()

    async def refresh(self) -> None:
        """Check if somebody reads events, so that the readers are told. Without readers, only requests have
        the brokers asked.
        """
        events = self._server.events
        if events.readers or events.on_publish:
            await self.problem()

    def _latest(self) -> str | None:
        known = trio.current_time() - self._checked_s <= KNOWN_S
        return (self._unreachable if known else None) or (
            None if self._server.address_book.nodes else UNKNOWN
        )

    def conditions(self) -> Iterator[Condition]:
        """Yield the condition of a Weir that is not ready, as found by the latest check; nothing while Weir
        drains, and for brokers without a listener, which are a condition of their own.
        """
        reason = self._latest() if self._listening.is_set() else "starting"
        if reason is not None and not self._server.stopping:
            yield problem(
                "not_ready",
                f"Not ready: {reason}.",
                "Start the brokers, or correct upstream, its TLS and its login. The log has the reasons.",
            )


async def _unreachable(addresses: Iterable[Address], access: Access) -> str | None:
    """Ask the brokers until one answers, and return None. A broker that closes the connection counts too,
    because it may require SASL. Return the reasons if no broker answers.
    """

    async def ask(address: Address) -> None:
        try:
            await discover([address], PATIENCE_S, access)
        except DiscoveryError as error:
            if error.foreign or not error.reachable:
                raise

    race = Race(ask, DiscoveryError, STAGGER_S)
    with trio.move_on_after(PATIENCE_S):
        if await race.run(list(addresses)) is not None:
            return None
    said = "; ".join(map(str, list(race.failures.values())[:REASONS_MAX]))
    return f"no upstream broker could be reached: {said or f'no answer within {PATIENCE_S:g} s'}"
