"""TLS handshakes, in Trio, before the reactor takes over the sockets.

A handshake needs 0.3 to 0.5 ms of CPU (`docs/how-to/tls.md`). Its steps run in threads, where OpenSSL
releases the
interpreter lock: connections go on meanwhile, even when thousands of clients reconnect at once. A client has
no thread while Weir waits for its bytes, and no memory of the TLS library before its first flight is
complete.
"""

from __future__ import annotations

import math
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import trio

from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import ANONYMOUS
from weir.proxy.net.tls import first_flight, problems
from weir.proxy.net.tls.contexts import server_name_of
from weir.proxy.net.tls.distinguished_name import subject_of
from weir.proxy.net.tls.principal_mapping import UnmappedError
from weir.proxy.net.tls.rules import ListenerRules
from weir.proxy.net.tls.turns import HandshakeTurns
from weir.proxy.net.tls_socket import TlsSocket

FIRST_FLIGHT_S: Final = 2.0
"""Time (s) in which a client must send its first flight (ClientHello)."""
TIMEOUT_S: Final = 10.0
"""Maximum time (s) of waiting for the other bytes of a client's handshake. Waiting for a thread does not
count.
"""
THREADS: Final = 2
"""Number of threads that compute clients' handshakes at the same time; as many compute brokers'."""


class HandshakeRefusedError(Exception):
    """Error: the client cannot be served. Its socket is still open, so that the client can be held for a
    moment, and does not reconnect at once.
    """

    def __init__(self, reason: CloseReason, detail: str, sock: socket.socket | TlsSocket) -> None:
        super().__init__(detail)
        self.reason = reason
        self.sock = sock


class AcceptedClient(NamedTuple):
    """A client after its handshake."""

    sock: TlsSocket
    user: str
    node_id: int | None
    """Node id of the broker that the client named by SNI, else that of the listener's broker; None for any
    broker (bootstrap).
    """


class BrokerTlsError(ConnectionError):
    """Error: the TLS handshake with a broker failed."""


class TlsAcceptor:
    """Accepts the clients of all TLS listeners of one server: handshake, principal, requested broker."""

    def __init__(self, rules: ListenerRules, free_places: Callable[[], int]) -> None:
        """Begin without clients. The files of `rules` may change while the acceptor is used. `free_places`
        returns how many more connections there may be.
        """
        self._rules = rules
        self._free_places = free_places
        self._turns = HandshakeTurns(THREADS)
        self._unfinished: Counter[str] = Counter()
        """Number of clients whose handshake has not ended, by address."""

    async def enter(self, sock: socket.socket, node_id: int | None, host: str) -> AcceptedClient:
        """Perform the TLS handshake with a client at address `host`, at the listener of broker `node_id`
        (None: bootstrap). Return the client. Raises HandshakeRefusedError. The caller owns the socket.
        """
        context = self._rules.files.context
        with self._unfinished_handshake(sock, host):
            await _hello(sock)
            try:
                secured = context.wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
                )
            except OSError as error:  # the client has gone
                raise HandshakeRefusedError(CloseReason.CLIENT_RESET, str(error), sock) from None
            certificate = await self._shake(secured, host)
        established = TlsSocket(secured, problems.of_established_client)
        try:
            user = ANONYMOUS if certificate is None else self._rules.mapping.name(subject_of(certificate))
        except (UnmappedError, ValueError) as error:  # ValueError: an unreadable certificate
            raise HandshakeRefusedError(CloseReason.PRINCIPAL_UNMAPPED, str(error), established) from None
        names = self._rules.names
        named = names.node_id(server_name_of(secured)) if names is not None else None
        return AcceptedClient(established, user, node_id if named is None else named)

    @contextmanager
    def _unfinished_handshake(self, sock: socket.socket, host: str) -> Iterator[None]:
        """Count a handshake while it lasts. Raises HandshakeRefusedError if the address has too many."""
        if self._unfinished[host] > self._free_places():  # no address may take more than half of the places
            detail = f"{host} has {self._unfinished[host]} unfinished handshakes, half of all places"
            raise HandshakeRefusedError(CloseReason.UNFINISHED_HANDSHAKES, detail, sock)
        self._unfinished[host] += 1
        try:
            yield
        finally:
            self._unfinished[host] -= 1
            if not self._unfinished[host]:
                del self._unfinished[host]

    async def _shake(self, secured: ssl.SSLSocket, host: str) -> bytes | None:
        """Perform the handshake and return the client's certificate (DER); None if the client has shown none.
        Raises HandshakeRefusedError.
        """
        try:
            await _shake(secured, partial(self._turns.run, host, secured.do_handshake), TIMEOUT_S)
            return secured.getpeercert(binary_form=True)
        except trio.TooSlowError:
            raise _too_slow(secured, "TLS handshake", TIMEOUT_S) from None
        except ssl.SSLError as error:
            raise HandshakeRefusedError(*problems.of_client(error), secured) from None
        except OSError as error:
            raise HandshakeRefusedError(CloseReason.CLIENT_RESET, str(error), secured) from None
        except BaseException:
            secured.close()
            raise


async def shake_with_broker(
    sock: socket.socket, context: ssl.SSLContext, host: str, threads: trio.CapacityLimiter
) -> TlsSocket:
    """Perform the TLS handshake with the broker `host` on a connected socket. The socket is closed on failure
    or cancellation. Raises BrokerTlsError.
    """
    try:
        secured = context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
    except (OSError, ValueError) as error:  # a host that no certificate can name
        sock.close()
        raise BrokerTlsError(f"no TLS with {host!r}: {error}") from None
    try:
        await _shake(secured, partial(trio.to_thread.run_sync, secured.do_handshake, limiter=threads))
    except BaseException as error:
        secured.close()
        if isinstance(error, ssl.SSLError):
            raise BrokerTlsError(problems.of_broker(error)) from None
        if isinstance(error, ConnectionError):
            raise BrokerTlsError(problems.BROKER_CLOSED) from None
        raise
    return TlsSocket(secured, problems.of_broker)


async def _hello(sock: socket.socket) -> None:
    """Wait until the client's first TLS record has arrived. Raises HandshakeRefusedError if the client
    closes, speaks no TLS, or takes longer than `FIRST_FLIGHT_S`.
    """
    head: bytes | None = None
    try:
        with trio.move_on_after(FIRST_FLIGHT_S) as patience:
            head = await first_flight.arrive(sock)
        if patience.cancelled_caught:  # Weir may have been slow, not the client
            head = first_flight.peek(sock)
    except OSError as error:
        raise HandshakeRefusedError(CloseReason.CLIENT_RESET, str(error), sock) from None
    if head == b"":
        raise HandshakeRefusedError(CloseReason.CLIENT_CLOSED, "before the TLS handshake", sock)
    if head and head[0] != first_flight.HANDSHAKE_RECORD:
        raise HandshakeRefusedError(CloseReason.PLAIN_ON_TLS_PORT, problems.PLAIN_CLIENT, sock)
    if patience.cancelled_caught and (head is None or first_flight.needed_bytes(head)):
        raise _too_slow(sock, "ClientHello", FIRST_FLIGHT_S)


async def _shake(
    sock: ssl.SSLSocket, compute: Callable[[], Awaitable[None]], timeout_s: float = math.inf
) -> None:
    """Perform a handshake: call `compute` whenever the peer's bytes have arrived, until the handshake is
    complete. Raises trio.TooSlowError if all waits together take longer than `timeout_s`.
    """
    while True:
        wait = trio.lowlevel.wait_readable
        try:
            await compute()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            wait = trio.lowlevel.wait_writable
        else:
            return
        began = trio.current_time()
        with trio.fail_after(timeout_s):
            await wait(sock)
        timeout_s = max(timeout_s - (trio.current_time() - began), 0.0)


def _too_slow(sock: socket.socket, what: str, limit_s: float) -> HandshakeRefusedError:
    return HandshakeRefusedError(
        CloseReason.CLIENT_HANDSHAKE_TIMEOUT, f"no {what} within {limit_s:g} s", sock
    )
