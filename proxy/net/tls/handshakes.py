"""TLS handshakes, in Trio, before the reactor takes over the sockets.

A handshake needs 0.3 to 0.5 ms of CPU (`docs/tls.md`). It runs in threads, where OpenSSL releases the
interpreter lock: connections go on meanwhile, even when thousands of clients reconnect at once. A client must
send something before it may occupy one of the concurrent handshakes, so silent clients need no memory.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final, NamedTuple

import trio

from proxy.close_reasons import CloseReason
from proxy.connection.connection import ANONYMOUS
from proxy.net.tls import problems
from proxy.net.tls.contexts import server_name_of
from proxy.net.tls.distinguished_name import subject_of
from proxy.net.tls.principal_mapping import UnmappedError
from proxy.net.tls.rules import ListenerRules
from proxy.net.tls_socket import TlsSocket

TIMEOUT_S: Final = 10.0
"""Time (s) that a client may take for its handshake, not counting the wait for its turn."""
HANDSHAKES_MAX: Final = 1000
"""Number of concurrent handshakes, about 50 KB each; more clients wait."""
THREADS: Final = 2
"""Number of threads that compute handshakes."""
HANDSHAKE_RECORD: Final = b"\x16"
"""The first byte of a TLS client."""


class RefusedError(Exception):
    """The client cannot be served. Its socket is open, so that the client can be kept from reconnecting at
    once.
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
    """The broker named by SNI, else the listener's; None for bootstrap."""


class BrokerTlsError(ConnectionError):
    """A broker's handshake failed."""


class TlsAcceptor:
    """Accepts the clients of all TLS listeners of one server: handshake, principal, requested broker."""

    def __init__(self, rules: ListenerRules) -> None:
        """The files of `rules` may change while the acceptor is used."""
        self._rules = rules
        self._slots = trio.CapacityLimiter(HANDSHAKES_MAX)
        self._threads = trio.CapacityLimiter(THREADS)

    async def enter(self, sock: socket.socket, node_id: int | None) -> AcceptedClient:
        """Shake hands with a client of this broker's listener (None: bootstrap); the caller owns the socket.
        Raises RefusedError.
        """
        context = self._rules.files.context
        await self._hello(sock)
        async with self._slots:
            try:
                secured = context.wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
                )
            except OSError as error:  # the client has gone
                raise RefusedError(CloseReason.CLIENT_RESET, str(error), sock) from None
            certificate = await self._shake(secured)
        established = TlsSocket(secured, problems.of_established_client)
        try:
            user = ANONYMOUS if certificate is None else self._rules.mapping.name(subject_of(certificate))
        except (UnmappedError, ValueError) as error:  # ValueError: an unreadable certificate
            raise RefusedError(CloseReason.PRINCIPAL_UNMAPPED, str(error), established) from None
        names = self._rules.names
        named = names.node_id(server_name_of(secured)) if names is not None else None
        return AcceptedClient(established, user, node_id if named is None else named)

    async def _shake(self, secured: ssl.SSLSocket) -> bytes | None:
        """Return the client's certificate (DER). Raises RefusedError."""
        try:
            with trio.fail_after(TIMEOUT_S):
                await _shake(secured, self._threads)
            return secured.getpeercert(binary_form=True)
        except trio.TooSlowError:
            raise _too_slow(secured) from None
        except ssl.SSLError as error:
            raise RefusedError(*problems.of_client(error), secured) from None
        except OSError as error:
            raise RefusedError(CloseReason.CLIENT_RESET, str(error), secured) from None
        except BaseException:
            secured.close()
            raise

    async def _hello(self, sock: socket.socket) -> None:
        """Wait for the first byte of a TLS client. Raises RefusedError."""
        try:
            with trio.fail_after(TIMEOUT_S):
                first = await _look(sock)
        except trio.TooSlowError:
            raise _too_slow(sock) from None
        except OSError as error:
            raise RefusedError(CloseReason.CLIENT_RESET, str(error), sock) from None
        if not first:
            raise RefusedError(CloseReason.CLIENT_CLOSED, "before the TLS handshake", sock)
        if first != HANDSHAKE_RECORD:
            raise RefusedError(CloseReason.PLAIN_ON_TLS_PORT, problems.PLAIN_CLIENT, sock)


async def shake_with_broker(
    sock: socket.socket, context: ssl.SSLContext, host: str, threads: trio.CapacityLimiter
) -> TlsSocket:
    """Shake hands with the broker `host` on a connected socket, which is closed on failure or cancellation.
    Raises BrokerTlsError.
    """
    try:
        secured = context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
    except (OSError, ValueError) as error:  # a host that no certificate can name
        sock.close()
        raise BrokerTlsError(f"no TLS with {host!r}: {error}") from None
    try:
        await _shake(secured, threads)
    except BaseException as error:
        secured.close()
        if isinstance(error, ssl.SSLError):
            raise BrokerTlsError(problems.of_broker(error)) from None
        if isinstance(error, ConnectionError):
            raise BrokerTlsError(problems.BROKER_CLOSED) from None
        raise
    return TlsSocket(secured, problems.of_broker)


async def _shake(sock: ssl.SSLSocket, threads: trio.CapacityLimiter) -> None:
    while True:
        try:
            await trio.to_thread.run_sync(sock.do_handshake, limiter=threads)
        except ssl.SSLWantReadError:
            await trio.lowlevel.wait_readable(sock)
        except ssl.SSLWantWriteError:
            await trio.lowlevel.wait_writable(sock)
        else:
            return


async def _look(sock: socket.socket) -> bytes:
    """Return the first byte without consuming it; nothing at the end."""
    while True:
        try:
            return sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)


def _too_slow(sock: socket.socket) -> RefusedError:
    text = f"no TLS handshake within {TIMEOUT_S:g} s"
    return RefusedError(CloseReason.CLIENT_HANDSHAKE_TIMEOUT, text, sock)
