"""A side of a relay: one of its two sockets, and the bytes that wait on either way through it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, TypeAlias

from proxy.reasons import CloseReason
from proxy.transport.poll import READ

NOTHING: Final = memoryview(b"")

Feed: TypeAlias = Callable[[bytearray, memoryview, int, int], int]
"""(data, view of it, end, now_ms) -> how many bytes were consumed: a half of the session (`requests`,
`responses`).
"""


class Side:
    """One of the two sockets, what is kept of what came from it, and what it could not yet be sent."""

    __slots__ = (
        "eof",
        "fd",
        "feed",
        "interest",
        "kept",
        "own",
        "received_bytes",
        "recv_into",
        "reset",
        "send",
        "sock",
        "unsent",
    )

    def __init__(self, sock: socket.socket, feed: Feed, reset: CloseReason) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.recv_into = sock.recv_into
        self.send = sock.send
        self.feed = feed
        self.reset = reset
        self.kept: bytes | memoryview = b""
        """Read from this side, not yet consumed by the session."""
        self.own: bytearray | None = None
        """Where `kept` lies if it has outgrown the shared buffer."""
        self.unsent = NOTHING
        """To be sent to this side, after an incomplete send."""
        self.received_bytes = 0
        self.interest = READ
        self.eof = False
        """This side will send no more."""
