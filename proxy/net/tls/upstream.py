"""Connections to brokers, with or without TLS: a socket for clients' connections, a stream for Weir's own
requests.
"""

from __future__ import annotations

import socket

import trio

from proxy.addresses import Address
from proxy.net import sockets
from proxy.net.tls.handshakes import THREADS, shake_with_broker
from proxy.net.tls.rules import UpstreamRules
from proxy.net.tls.stream import TlsStream
from proxy.net.tls_socket import TlsSocket


class Upstream:
    """Connects as configured. The caller sets the time limit; cancellation leaves nothing open."""

    def __init__(self, rules: UpstreamRules | None = None) -> None:
        """`rules` None: without TLS."""
        self._rules = rules
        self._threads = trio.CapacityLimiter(THREADS)

    async def connect(self, address: Address) -> socket.socket | TlsSocket:
        """Return a connected socket for a relay, after its handshake.

        Raises OSError whose text says what to do; ConfigError if the files of `upstream_*` cannot be used.
        """
        sock = await sockets.connect(address)
        if self._rules is None:
            return sock
        return await self._secured(sock, address, self._rules)

    async def open_stream(self, address: Address) -> trio.abc.Stream:
        """Return a connected stream; raises as `connect`. Receiving may raise OSError or
        trio.BrokenResourceError.
        """
        sock = await self.connect(address)
        if isinstance(sock, TlsSocket):
            return TlsStream(sock)
        return trio.SocketStream(trio.socket.from_stdlib_socket(sock))

    async def _secured(self, sock: socket.socket, address: Address, rules: UpstreamRules) -> TlsSocket:
        try:
            context = rules.files.context
        except BaseException:
            sock.close()
            raise
        return await shake_with_broker(sock, context, address.host, self._threads)
