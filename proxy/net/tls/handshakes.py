"""TLS handshakes, in Trio, before the reactor takes over the sockets.

A handshake needs a millisecond or more of CPU. It runs in threads, where OpenSSL releases the interpreter
lock: connections go on meanwhile, even when thousands of clients reconnect at once. A client must send
something before it may occupy one of the concurrent handshakes, so silent clients need no memory.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final, NamedTuple

import trio

from proxy.close_reasons import CloseReason
from proxy.net.tls import problems
from proxy.net.tls.contexts import server_name_of
from proxy.net.tls_socket import TlsSocket

TIMEOUT_S: Final = 10.0
"""Time (s) that a client may take for its handshake, not counting the wait for its turn."""
HANDSHAKES_MAX: Final = 1000
"""Number of concurrent handshakes, about 50 KB each; more clients wait."""
THREADS: Final = 2
"""Number of threads that compute handshakes."""
HANDSHAKE_RECORD: Final = b"\x16"
"""The first byte of a TLS client."""


class HandshakeError(Exception):
    """A client's handshake failed. Its socket is open, so that the client can be kept from reconnecting at
    once.
    """

    def __init__(self, reason: CloseReason, detail: str, sock: socket.socket) -> None:
        super().__init__(detail)
        self.reason = reason
        self.sock = sock


class BrokerTlsError(ConnectionError):
    """A broker's handshake failed."""


class Secured(NamedTuple):
    """A client after its handshake."""

    sock: TlsSocket
    certificate: bytes | None
    """DER; None without a certificate."""
    server_name: str | None
    """The server name (SNI) that the client has sent."""


class Handshakes:
    """Handshakes with clients; one instance per process."""

    def __init__(self) -> None:
        self._slots = trio.CapacityLimiter(HANDSHAKES_MAX)
        self._threads = trio.CapacityLimiter(THREADS)

    async def accept(self, sock: socket.socket, context: ssl.SSLContext) -> Secured:
        """Shake hands with a client; the caller owns the socket. Raises HandshakeError."""
        await self._hello(sock)
        async with self._slots:
            try:
                secured = context.wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
                )
            except OSError as error:  # the client has gone
                raise HandshakeError(CloseReason.CLIENT_RESET, str(error), sock) from None
            try:
                with trio.fail_after(TIMEOUT_S):
                    await _shake(secured, self._threads)
                certificate = secured.getpeercert(binary_form=True)
            except trio.TooSlowError:
                raise _too_slow(secured) from None
            except ssl.SSLError as error:
                raise HandshakeError(*problems.of_client(error), secured) from None
            except OSError as error:
                raise HandshakeError(CloseReason.CLIENT_RESET, str(error), secured) from None
            except BaseException:
                secured.close()
                raise
        established = TlsSocket(secured, problems.of_established_client)
        return Secured(established, certificate, server_name_of(secured))

    async def _hello(self, sock: socket.socket) -> None:
        """Wait for the first byte of a TLS client. Raises HandshakeError."""
        try:
            with trio.fail_after(TIMEOUT_S):
                first = await _look(sock)
        except trio.TooSlowError:
            raise _too_slow(sock) from None
        except OSError as error:
            raise HandshakeError(CloseReason.CLIENT_RESET, str(error), sock) from None
        if not first:
            raise HandshakeError(CloseReason.CLIENT_CLOSED, "before the TLS handshake", sock)
        if first != HANDSHAKE_RECORD:
            raise HandshakeError(CloseReason.PLAIN_ON_TLS_PORT, problems.PLAIN_CLIENT, sock)


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


def _too_slow(sock: socket.socket) -> HandshakeError:
    text = f"no TLS handshake within {TIMEOUT_S:g} s"
    return HandshakeError(CloseReason.CLIENT_HANDSHAKE_TIMEOUT, text, sock)
