"""A side of a relay: one of its two sockets, and the bytes that wait on either way through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from proxy.close_reasons import CloseReason
from proxy.connection.effects import End
from proxy.net.poll import READ

Judge: TypeAlias = Callable[[bytearray, memoryview, int, int], int]
"""(data, view of it, end, now_ms) -> number of bytes consumed: a half of the connection (`Inbound.judge`,
`Outbound.judge`).
"""


class Socket(Protocol):
    """The part of a non-blocking socket that a relay uses: a `socket.socket`, or a `TlsSocket`."""

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


class Side(End):
    """One of the two sockets, with its end of the connection."""

    __slots__ = ("fd", "interest", "judge", "own", "received_bytes", "recv_into", "reset", "send", "sock")

    def __init__(self, sock: Socket, reset: CloseReason) -> None:
        """Take over a connected socket; `reset` is why the connection closes when the socket breaks."""
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


def unconnected(_data: bytearray, _view: memoryview, _end: int, _now_ms: int) -> int:
    """Stand for the connection that a side does not have yet, or no more."""
    raise AssertionError("a side without a connection")
