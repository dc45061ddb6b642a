"""From an accepted client to a session: connect to its broker, or refuse the client.

A refused client is held for a moment before it is closed. Weir has accepted it already, so what it sees is a
connection that worked and then broke: clients try that again without a pause, hundreds of times in an outage.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

import structlog
import trio

from proxy.addresses import Address, AddressBook
from proxy.config import Config
from proxy.connection_gate import ConnectionGate
from proxy.counters import Counters
from proxy.listeners import OVERLOAD
from proxy.reasons import CloseReason
from proxy.repeats import Repeats
from proxy.session.session import ANONYMOUS
from proxy.transport import sockets

log = structlog.get_logger("weir")

HOLD_S: Final = 0.7
"""How long a refused client is kept from trying again; about what clients pause by themselves after some
failures.
"""
HELD_MAX: Final = 1000
"""How many refused clients are held at a time; more are closed at once. Each is one descriptor."""
NO_RESOURCES: Final = OVERLOAD | {errno.EADDRNOTAVAIL}
"""connect() fails like this when descriptors, memory or local ports have run out."""


class Client(NamedTuple):
    """An accepted client."""

    sock: socket.socket
    peer: Address
    host: str
    """Where it has reached Weir."""
    user: str = ANONYMOUS
    """Who its certificate says it is."""


StartRelay: TypeAlias = Callable[[Client, socket.socket, int | None], None]
"""(client, broker, node id): takes both sockets over."""


class RefusalError(Exception):
    """The client cannot be served."""

    def __init__(self, reason: CloseReason, detail: str, hold_s: float | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.hold_s = HOLD_S if hold_s is None else hold_s


class Establisher:
    """Takes accepted clients to their brokers."""

    def __init__(
        self,
        config: Config,
        book: AddressBook,
        gate: ConnectionGate,
        counters: Counters,
        repeats: Repeats,
        start_relay: StartRelay,
    ) -> None:
        """Share the server's book and counters."""
        self._config = config
        self._book = book
        self._gate = gate
        self._counters = counters
        self._repeats = repeats
        self._start_relay = start_relay
        self._held = 0

    async def establish(self, sock: socket.socket, node_id: int | None, peer: Address) -> None:
        """Connect to the broker and start a relay, or refuse the client."""
        try:
            await self._relay(sock, node_id, peer)
        except RefusalError as refusal:
            self._note(refusal, node_id, peer)
            await self._close_later(sock, refusal.hold_s)
        except Exception as error:  # a bug of ours must end nothing but its client
            sock.close()
            self._counters.closed[CloseReason.INTERNAL_ERROR] += 1
            log.exception("internal error, the client is refused; please report this", exc_info=error)
        except BaseException:
            sock.close()
            self._counters.closed[CloseReason.STOPPED] += 1
            raise

    async def _relay(self, sock: socket.socket, node_id: int | None, peer: Address) -> None:
        """Raises RefusalError; the client's socket is open then."""
        counters = self._counters
        if counters.sessions_open >= self._config.settings.connections_max:
            raise RefusalError(CloseReason.CONNECTION_LIMIT, "raise connections_max")
        denial = self._gate.enter(node_id, peer.host)
        if denial is not None:
            raise RefusalError(*denial)
        counters.sessions_open += 1
        relayed = False
        try:
            client = _set_up(sock, peer)
            broker, found = await self._connect(node_id)
            self._start_relay(client, broker, found)
            relayed = True
        finally:
            if not relayed:
                counters.sessions_open -= 1
                self._gate.leave(peer.host)

    async def _connect(self, node_id: int | None) -> tuple[socket.socket, int | None]:
        """Connect to a broker, for the bootstrap listener to any. Raises RefusalError."""
        failure: RefusalError | None = None
        timeout_s = self._config.settings.connect_timeout_s
        targets = self._targets(node_id)
        with trio.move_on_after(timeout_s):
            for address, found in targets:
                # A host that swallows packets must leave time for the others.
                with trio.move_on_after(timeout_s if len(targets) == 1 else timeout_s / 3):
                    try:
                        return await sockets.connect(address), found
                    except OSError as error:
                        failure = _refusal(address, error)
        raise failure or RefusalError(CloseReason.CONNECT_TIMEOUT, f"broker silent for {timeout_s:g} s")

    def _targets(self, node_id: int | None) -> list[tuple[Address, int | None]]:
        """Where to connect, in order of preference: brokers whose id, and so whose quotas, are known come
        first.
        """
        nodes = self._book.nodes
        if node_id is not None:
            return [(nodes[node_id], node_id)]
        named = [(address, self._book.node_at(address)) for address in self._config.upstream]
        first = [target for target in named if target[1] is not None]
        others = [(address, found) for found, address in nodes.items()]
        return list(dict.fromkeys(first + others + named))

    def _note(self, refusal: RefusalError, node_id: int | None, peer: Address) -> None:
        self._counters.closed[refusal.reason] += 1
        details = {
            "reason": refusal.reason,
            "node_id": node_id,
            "client": str(peer),
            "detail": str(refusal),
        }
        self._repeats.note(("refused", node_id, refusal.reason), _refused, details)

    async def _close_later(self, sock: socket.socket, hold_s: float) -> None:
        with sock:
            if self._held < HELD_MAX:
                self._held += 1
                try:
                    await trio.sleep(hold_s)
                finally:
                    self._held -= 1


def _set_up(sock: socket.socket, peer: Address) -> Client:
    """Raises RefusalError."""
    try:
        sock.setblocking(False)
        sockets.set_up(sock)
        return Client(sock, peer, sockets.local_host(sock))
    except OSError as error:  # some systems say so if the client has gone meanwhile
        raise RefusalError(CloseReason.CLIENT_RESET, str(error)) from None


def _refusal(address: Address, error: OSError) -> RefusalError:
    detail = f"broker {address}: {error.strerror or error}"
    if error.errno in NO_RESOURCES:
        return RefusalError(
            CloseReason.OUT_OF_RESOURCES, f"{detail}: raise the limit of open files (ulimit -n)"
        )
    return RefusalError(CloseReason.BROKER_UNREACHABLE, detail)


def _refused(count: int, details: Mapping[str, object]) -> None:
    log.warning("connection refused", count=count, **details)
