"""A side of a relay: one of its two sockets, and the bytes that wait on either way through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from proxy.reasons import CloseReason
from proxy.transport.poll import READ

NOTHING: Final = memoryview(b"")

Feed: TypeAlias = Callable[[bytearray, memoryview, int, int], int]
"""(data, view of it, end, now_ms) -> how many bytes were consumed: a half of the session (`requests`,
`responses`).
"""


class Socket(Protocol):
    """What a relay uses of a socket, which does not block: a `socket.socket`, or a `TlsSocket`."""

    def fileno(self) -> int:
        """Return the descriptor to wait for."""

    def recv_into(self, buffer: memoryview, nbytes: int = 0, /) -> int:
        """Read at most `nbytes`, 0 for as much as fits. Raises OSError, BlockingIOError."""

    def recv(self, bufsize: int, flags: int, /) -> bytes:
        """Read; used to look ahead (MSG_PEEK) only. Raises OSError, BlockingIOError."""

    def send(self, data: memoryview | bytes, /) -> int:
        """Send some, return how much. Raises OSError, BlockingIOError."""

    def sendmsg(self, buffers: Sequence[memoryview | bytes], /) -> int:
        """Send some of all, return how much. Raises OSError, BlockingIOError."""

    def close(self) -> None:
        """Close it."""


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

    def __init__(self, sock: Socket, feed: Feed, reset: CloseReason) -> None:
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
