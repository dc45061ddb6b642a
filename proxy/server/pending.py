"""A client that is not connected to a broker yet."""

from __future__ import annotations

import socket

from weir.proxy.addresses import Address
from weir.proxy.net.side import Socket
from weir.proxy.server.target import Target


class PendingConnection:
    """A client that has no broker connection yet. The TLS handshake may change the client's socket and
    target.
    """

    __slots__ = ("is_counted", "listener", "peer", "plain", "sock", "target")

    def __init__(self, sock: socket.socket, target: Target, peer: Address) -> None:
        self.plain = sock
        self.sock: Socket = sock
        """The client's present socket, which must be closed at the end: the plain socket, or the TlsSocket
        after a handshake.
        """
        self.target = target
        self.listener = target
        """Target of the listener that has accepted the client."""
        self.peer = peer
        """The client's address. A load balancer's PROXY header changes it."""
        self.is_counted = False
        """True if the connection limiter has counted the connection for the client's address."""
