"""Connections to brokers, with or without TLS: a socket for clients' connections, a stream for Weir's own
requests.
"""

from __future__ import annotations

import socket
from typing import Final

import trio

from weir.proxy.addresses import Address
from weir.proxy.net import sockets
from weir.proxy.net.tls.contexts import ContextOfFiles
from weir.proxy.net.tls.handshakes import THREADS, shake_with_broker
from weir.proxy.net.tls_socket import TlsSocket

RECEIVE_BYTES: Final = 65_536


class Upstream:
    """Opens connections to brokers, with TLS if TLS is configured. The caller sets the time limit;
    cancellation leaves no socket open.
    """

    def __init__(self, files: ContextOfFiles | None = None, refuse: sockets.Refuse | None = None) -> None:
        """Connect with the TLS context `files`; without TLS if it is None. `refuse` tells the IP addresses
        that are not to be connected.
        """
        self._files = files
        self._refuse = refuse
        self._threads = trio.CapacityLimiter(THREADS)

    async def connect(self, address: Address) -> socket.socket | TlsSocket:
        """Return a socket for a relay, connected to the broker, after the TLS handshake if TLS is configured.

        Raises OSError, with a text that says what to do, or ConfigError if the files of `upstream_*` cannot
        be used.
        """
        sock = await sockets.connect(address, self._refuse)
        if self._files is None:
            return sock
        try:
            context = self._files.context
        except BaseException:
            sock.close()
            raise
        return await shake_with_broker(sock, context, address.host, self._threads)

    async def open_stream(self, address: Address) -> trio.abc.Stream:
        """Return a Trio stream connected to the broker. Raises OSError, or ConfigError if the files of
        `upstream_*` cannot be used. Receiving may raise OSError or trio.BrokenResourceError.
        """
        sock = await self.connect(address)
        if isinstance(sock, TlsSocket):
            return TlsStream(sock)
        return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


class TlsStream(trio.abc.Stream):
    """A TLS connection as a Trio stream, for one task at a time. Raises OSError as sockets do."""

    def __init__(self, sock: TlsSocket) -> None:
        """Take over the socket, which `aclose` closes."""
        self._sock = sock

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`."""
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            try:
                sent = self._sock.send(rest)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._sock)
            else:
                rest = rest[sent:]

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket is writable."""
        await trio.lowlevel.wait_writable(self._sock)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait until bytes have arrived, and return at most `max_bytes` of them; b"" if the peer has
        closed.
        """
        await trio.lowlevel.checkpoint()
        buffer = bytearray(max_bytes or RECEIVE_BYTES)
        while True:
            try:
                count = self._sock.recv_into(memoryview(buffer))
            except BlockingIOError:
                await self._wait_to_receive()
            else:
                return bytes(buffer[:count])

    async def _wait_to_receive(self) -> None:
        if self._sock.wants_write:
            self._sock.wants_write = False
            await trio.lowlevel.wait_writable(self._sock)
        else:
            await trio.lowlevel.wait_readable(self._sock)

    async def aclose(self) -> None:
        """Close the socket."""
        self._sock.close()
        await trio.lowlevel.checkpoint()
