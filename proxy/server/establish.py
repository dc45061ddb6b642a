"""From an accepted client to a relay: connect to its broker, or refuse the client.

While a broker cannot be reached, its listener refuses connections, as the broker's host would. A client whose
connection is accepted assumes a live broker, does not back off, and may spin while it waits for a response.

A client refused for another reason is held for a moment before its connection is closed. Weir has already
accepted it, and clients reconnect without a pause after an established connection breaks.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import structlog
import trio

from weir.proxy.addresses import Address, AddressBook
from weir.proxy.close_reasons import BY_PEERS, CloseReason
from weir.proxy.config.config import Config, plain_ip
from weir.proxy.connection.connection import ANONYMOUS
from weir.proxy.control.cluster.broker_states import BrokerStates
from weir.proxy.control.rate_limited_log import RateLimitedLog
from weir.proxy.counters import Counters
from weir.proxy.net import sockets
from weir.proxy.net.own_listeners import OwnListeners
from weir.proxy.net.proxy_protocol.receive import NoClientError, receive
from weir.proxy.net.proxy_protocol.rules import is_listed
from weir.proxy.net.race import BadAlternatives, Race
from weir.proxy.net.side import Socket
from weir.proxy.net.tls.handshakes import HandshakeRefusedError, TlsAcceptor
from weir.proxy.net.tls.upstream import Upstream
from weir.proxy.server.connection_limiter import ConnectionLimiter
from weir.proxy.server.pending import PendingConnection
from weir.proxy.server.refusals import RefusalError, misdirected, refused_by_broker, refused_by_tls
from weir.proxy.server.target import BOOTSTRAP, Target

log = structlog.get_logger("weir")

HELD_MAX: Final = 4096
"""Maximum number of refused clients that are held, one descriptor each. Further ones are closed at once, and
come again at once: 1,051 clients behind a maximum of 1,000 took 0.72 of a core instead of 0.47.
"""
RIVAL_S: Final = 1.0
"""Time (s) after which the next broker is tried beside the one before, if any broker will do."""
PROBE_S: Final = 0.5
"""Time (s) between two attempts of Weir to reach a broker whose listener refuses connections."""
AWAY_AT_ONCE: Final = frozenset({CloseReason.BROKER_UNREACHABLE, CloseReason.BROKER_MISDIRECTED})
"""Close reasons of a failed connection to a broker, for which the broker's listener refuses connections."""
AWAY: Final = AWAY_AT_ONCE | {CloseReason.CONNECT_TIMEOUT}
"""Close reasons of an attempt to reach such a broker, after which the listener still refuses connections."""
STATED: Final = AWAY | {CloseReason.BROKER_HANDSHAKE_FAILED}
"""Close reasons of a failed connection to a broker that say that the broker is down."""


class AdmittedClient(NamedTuple):
    """An accepted client, after its TLS handshake."""

    sock: Socket
    peer: Address
    host: str
    """Address at which the client has reached Weir."""
    user: str = ANONYMOUS
    """Principal of the client's certificate."""
    listener: Target = BOOTSTRAP
    """Target of the listener that has accepted the client."""


StartRelay: TypeAlias = Callable[[AdmittedClient, Socket, Target], None]
"""Function (client, broker's socket, target with the broker's node id if known) that starts a relay, which
then owns both sockets.
"""
RefuseUntil: TypeAlias = Callable[[Target, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Coroutine function (target of the listener, until) that has a listener refuse connections until `until`
returns.
"""


class Connector:
    """Connects accepted clients to their brokers."""

    def __init__(
        self,
        config: Config,
        address_book: AddressBook,
        states: BrokerStates,
        limiter: ConnectionLimiter,
        counters: Counters,
        rate_limited_log: RateLimitedLog,
        start_relay: StartRelay,
        refuse_until: RefuseUntil,
        own_listeners: OwnListeners,
    ) -> None:
        """Begin without clients; share the server's address book, limiter and counters. Record in `states`
        which brokers could be reached. Connect to none of `own_listeners`.
        """
        self.config = config
        self._states = states
        self._address_book = address_book
        self._limiter = limiter
        self._counters = counters
        self._rate_limited_log = rate_limited_log
        self._start_relay = start_relay
        self._refuse_until = refuse_until
        self._refusing: set[Target] = set()
        """Targets of the listeners that refuse connections."""
        self._held = 0
        self._tls_acceptor: TlsAcceptor | None = None
        self._replication_acceptor: TlsAcceptor | None = None
        if config.tls.listener is not None:
            self._tls_acceptor = TlsAcceptor(config.tls.listener, self._free_places)
            self._replication_acceptor = TlsAcceptor(
                replace(config.tls.listener, names=None), lambda: sys.maxsize
            )
        # By address: the target at an address changes as Weir learns which broker is there.
        self._bad: BadAlternatives[tuple[Address, Target]] = BadAlternatives(itemgetter(0))
        """Brokers that could not be reached."""
        self._upstream = Upstream(config.tls.upstream, own_listeners.refuse)

    async def establish(self, sock: socket.socket, target: Target, peer: Address) -> None:
        """Connect an accepted client to its broker and start a relay, or refuse the client."""
        pending = PendingConnection(sock, target, peer)
        try:
            await self._admitted(pending)
        except RefusalError as refusal:
            self.note_refusal(refusal, pending.target, pending.peer)
            if refusal.reason in AWAY_AT_ONCE and pending.target == pending.listener:
                await self._refuse_others(pending)
            else:
                await self._close_later(pending, refusal.hold_s)
        except Exception as error:  # noqa: BLE001  # a bug must affect only this client
            pending.sock.close()
            self._note_error(error, pending.target)
        except BaseException:
            pending.sock.close()
            self._counters.closed_at[CloseReason.STOPPED, self._known(pending.target)] += 1
            raise

    async def _admitted(self, pending: PendingConnection) -> None:
        """Serve a client within the limits of connections. Raises RefusalError; the client's socket is still
        open then.
        """
        counters = self._counters
        if not pending.target.is_replication and self._free_places() <= 0:
            raise RefusalError(CloseReason.CONNECTION_LIMIT, "raise connections_max")
        counters.sessions_open += 1
        served = False
        try:
            if not pending.target.is_replication:
                await self._enter(pending)
            await self._relay(pending)
            served = True
        finally:
            if not served:
                counters.sessions_open -= 1
                if pending.is_counted:
                    self._limiter.leave(pending.peer.host)

    async def _relay(self, pending: PendingConnection) -> None:
        """Connect a client to its broker and start a relay. Raises RefusalError; the client's socket is still
        open then.
        """
        client = await self._client(pending)
        broker, found = await self._connect(pending.target, self.addresses(pending.target))
        self._start_relay(client, broker, found)

    async def _enter(self, pending: PendingConnection) -> None:
        """Count a client's connection for its address, which a load balancer tells in a PROXY header. Raises
        RefusalError if a limit of connections is reached, or the header is missing. Brokers at replication
        listeners have no limits, so that no number of clients cuts off replication.
        """
        if is_listed(self.config.proxies, pending.peer.host):
            try:
                pending.plain.setblocking(False)
                pending.peer = await receive(pending.plain) or pending.peer
            except NoClientError as error:
                hold_s = 0 if error.reason in BY_PEERS else None
                raise RefusalError(error.reason, str(error), hold_s) from None
        rejection = self._limiter.enter(pending.target.node_id, pending.peer.host)
        if rejection is not None:
            raise RefusalError(*rejection)
        pending.is_counted = True

    async def _client(self, pending: PendingConnection) -> AdmittedClient:
        """Set up the client's socket; at a TLS listener, shake hands and read the principal. Return the
        client. Raises RefusalError.
        """
        plain = pending.plain
        host = _set_up(plain)
        target = pending.target
        acceptor = self._replication_acceptor if target.is_replication else self._tls_acceptor
        if acceptor is None:
            return AdmittedClient(plain, pending.peer, host, listener=pending.listener)
        try:
            accepted = await acceptor.enter(plain, target.node_id, plain_ip(pending.peer.host))
        except HandshakeRefusedError as error:
            pending.sock = error.sock
            raise refused_by_tls(error) from None
        pending.sock, pending.target = accepted.sock, target._replace(node_id=accepted.node_id)
        if accepted.node_id is not None and not self._is_known(pending.target):
            raise RefusalError(CloseReason.SERVER_NAME_UNKNOWN, f"no broker {accepted.node_id} is known")
        return AdmittedClient(accepted.sock, pending.peer, host, accepted.user, pending.listener)

    async def _connect(
        self, target: Target, addresses: list[tuple[Address, Target]]
    ) -> tuple[Socket, Target]:
        """Return a socket connected to the first of these addresses (`self.addresses`) that can be reached,
        and its target. Raises RefusalError.
        """
        race = Race(self._reached, RefusalError, RIVAL_S, _close)
        timeout_s = self.config.connect_timeout_s
        won = None
        with trio.move_on_after(timeout_s):
            won = await race.run(self._bad.last(addresses, trio.current_time()))
        self._bad.note(race, won, trio.current_time())
        failed = {found: error for (_address, found), error in race.failures.items()}
        if won is not None:
            (_address, found), broker = won
            failed.pop(found, None)  # a broker may have several addresses
            self._note_failures(failed)
            self._note_state(found)
            return broker, found
        self._note_failures(failed)
        if not failed:
            silent = RefusalError(CloseReason.CONNECT_TIMEOUT, f"broker silent for {timeout_s:g} s")
            failed[target] = silent
            self._note_state(target, str(silent))
        raise list(failed.values())[-1]

    async def _reached(self, candidate: tuple[Address, Target]) -> Socket:
        """Return a socket connected to a broker. Raises RefusalError."""
        address = candidate[0]
        if reason := self._address_book.misdirected.get(address):
            raise misdirected(address, reason)
        try:
            return await self._upstream.connect(address)
        except OSError as error:
            raise refused_by_broker(address, error) from None

    def _note_failures(self, failed: Mapping[Target, RefusalError]) -> None:
        for target, refusal in failed.items():
            if refusal.reason in STATED:
                self._note_state(target, str(refusal))

    def _note_state(self, target: Target, failure: str | None = None) -> None:
        """Record that a broker was reached, or the failure. Replication listeners say nothing about brokers'
        states, because clients do not use them.
        """
        if target.is_replication:
            return
        if failure is None:
            self._states.reached(target.node_id)
        else:
            self._states.failed(target.node_id, failure)

    def _free_places(self) -> int:
        return self.config.settings.connections_max - self._counters.sessions_open - self._limiter.elsewhere

    def addresses(self, target: Target) -> list[tuple[Address, Target]]:
        """Return addresses of brokers, each with its target, in order of preference: brokers whose node id is
        known come first, because quotas are per broker.
        """
        if target.is_replication:
            assert target.node_id is not None  # each of these listeners has a broker
            return [(self.config.replication.upstream[target.node_id], target)]
        upstream, nodes = self.config.upstream, self._address_book.nodes
        if target.node_id is not None:
            return [
                (address, target) for address in self._address_book.addresses_of(target.node_id, upstream)
            ]
        node_at = self._address_book.node_at
        configured = [(address, Target(node_at(address))) for address in upstream]
        first = [(address, found) for address, found in configured if found != BOOTSTRAP]
        others = [(address, Target(found)) for found, address in nodes.items()]
        sole = self._address_book.sole
        last = [(address, Target(sole) if found == BOOTSTRAP else found) for address, found in configured]
        return list(dict.fromkeys(first + others + last))

    def note_refusal(self, refusal: RefusalError, target: Target, client: Address) -> None:
        """Count and log a client that is refused."""
        known = self._known(target)
        self._counters.closed_at[refusal.reason, known] += 1
        details = {"reason": refusal.reason, **target.log_fields, "client": str(client)}
        details["detail"] = str(refusal)
        if refusal.reason in BY_PEERS:
            log.debug("connection refused", **details)
        else:
            kind = ("refused", target._replace(node_id=known), refusal.reason)
            self._rate_limited_log.note(kind, _refused, details)

    def _known(self, target: Target) -> int | None:
        """Return the target's node id if a known broker has it; else None. Clients can ask for any node id by
        server name.
        """
        return target.node_id if self._is_known(target) else None

    def _is_known(self, target: Target) -> bool:
        return target.is_replication or target.node_id in self._address_book.nodes

    def _note_error(self, error: Exception, target: Target) -> None:
        """Count and log an unexpected exception while a client or a broker is being connected."""
        self._counters.closed_at[CloseReason.INTERNAL_ERROR, self._known(target)] += 1
        kind = ("internal, refused", type(error).__name__)
        self._rate_limited_log.note(kind, _internal_error, {"exc_info": error})

    async def _refuse_others(self, pending: PendingConnection) -> None:
        """Have the listener of the client's broker refuse connections until the broker can be reached again,
        and close this client.
        """
        target = pending.target
        if target in self._refusing:
            pending.sock.close()
            return
        self._refusing.add(target)
        try:
            await self._refuse_until(target, partial(self._until_back, pending))
        finally:
            self._refusing.remove(target)

    async def _until_back(self, pending: PendingConnection) -> None:
        """Close this client, and try to reach its broker every `PROBE_S`. Return once the broker can be
        reached, or the attempt fails for a reason that is not in `AWAY`.
        """
        pending.sock.close()
        while True:
            await trio.sleep(PROBE_S)
            if not await self._is_away(pending.target):
                return

    async def _is_away(self, target: Target) -> bool:
        """Try to reach a broker; return True if it cannot be reached. A failure is counted like a client's,
        because alerts use these counters. The log has the broker's state instead (`BrokerStates`).
        """
        try:
            broker, _target = await self._connect(target, self.addresses(target))
        except RefusalError as refusal:
            self._counters.closed_at[refusal.reason, self._known(target)] += 1
            return refusal.reason in AWAY
        except Exception as error:  # noqa: BLE001  # a bug must not close a listener for good
            self._note_error(error, target)
            return False
        broker.close()
        return False

    async def _close_later(self, pending: PendingConnection, hold_s: float) -> None:
        try:
            if self._held < HELD_MAX:
                self._held += 1
                try:
                    await trio.sleep(hold_s)
                finally:
                    self._held -= 1
        finally:
            pending.sock.close()


def _close(sock: Socket) -> None:
    sock.close()


def _set_up(sock: socket.socket) -> str:
    """Set the options of a client's socket; return the address at which the client has reached Weir. Raises
    RefusalError.
    """
    try:
        sock.setblocking(False)
        sockets.set_up(sock)
        return sockets.local_host(sock)
    except OSError as error:  # on some systems, if the client has gone
        raise RefusalError(CloseReason.CLIENT_RESET, str(error)) from None


def _refused(count: int, details: Mapping[str, object]) -> None:
    log.warning("connection refused", count=count, **details)


def _internal_error(count: int, details: Mapping[str, object]) -> None:
    log.error("internal error, the client is refused; please report this", count=count, **details)
