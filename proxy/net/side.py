"""A side of a relay: one of its two sockets, and the bytes waiting in either direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from proxy.close_reasons import CloseReason
from proxy.connection.effects import End
from proxy.net.poll import READ

Judge: TypeAlias = Callable[[bytearray, memoryview, int, int], int]
"""(data, view of it, end, now_ms) -> number of bytes consumed: `Inbound.judge` or `Outbound.judge`."""


class Socket(Protocol):
    """The socket methods that a relay uses, of a `socket.socket` or a `TlsSocket`."""

    def fileno(self) -> int:
        """Return the descriptor to poll."""

    def recv_into(self, buffer: memoryview, nbytes: int = 0, /) -> int:
        """Read at most `nbytes`, 0 for as many as fit. Raises OSError, BlockingIOError."""

    def recv(self, bufsize: int, flags: int, /) -> bytes:
        """Read; used only to peek (MSG_PEEK). Raises OSError, BlockingIOError."""

    def send(self, data: memoryview | bytes, /) -> int:
        """Send some bytes, return their number. Raises OSError, BlockingIOError."""

    def sendmsg(self, buffers: Sequence[memoryview | bytes], /) -> int:
        """Send some bytes of all buffers, return their number. Raises OSError, BlockingIOError."""

    def shutdown(self, how: int, /) -> None:
        """Close the sending half (SHUT_WR, the only use); later reads only discard. Raises OSError."""

    def close(self) -> None:
        """Close the socket."""


class Side(End):
    """One of the two sockets, with its end of the connection."""

    __slots__ = (
        "fd",
        "interest",
        "judge",
        "own",
        "received_bytes",
        "recv_into",
        "reset",
        "send",
        "sock",
        "unsent_bytes",
    )

    def __init__(self, sock: Socket, reset: CloseReason) -> None:
        """Take over a connected socket; `reset` is the close reason if the socket breaks."""
        super().__init__()
        self.sock = sock
        self.fd = sock.fileno()
        self.recv_into = sock.recv_into
        self.send = sock.send
        self.judge: Judge = unconnected
        self.reset = reset
        self.own: bytearray | None = None
        """The buffer of `kept`, if it has outgrown the shared one."""
        self.received_bytes = 0
        """Number of bytes read from this socket."""
        self.interest = READ
        self.unsent_bytes = 0
        """Size of the memory that `unsent` is part of."""

    @property
    def held_bytes(self) -> int:
        """Number of bytes of memory of `kept` and `unsent`."""
        return (len(self.kept) if self.own is None else len(self.own)) + self.unsent_bytes


def unconnected(_data: bytearray, _view: memoryview, _end: int, _now_ms: int) -> int:
    """Stand in for the connection that a side does not have yet, or no longer has."""
    raise AssertionError("a side without a connection")
