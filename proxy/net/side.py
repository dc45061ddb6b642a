"""One side of a relay: one of its two sockets, and the bytes that wait in either direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.effects import End
from weir.proxy.net.poll import READ


class Half(Protocol):
    """A connection's `Inbound` or `Outbound`."""

    first_bytes: int
    """Number of bytes to read of the next frame if it is large. The rest need not be seen."""

    def passable_bytes(self) -> int:
        """Return the number of bytes that come next and that nobody needs to see."""

    def passed(self, count: int, now_ms: int) -> None:
        """Note that the next `count` bytes have been forwarded unseen."""


Judge: TypeAlias = Callable[[bytearray, memoryview, int, int], int]
"""Function (data, memoryview of data, end, now_ms) that processes `data[:end]` and returns the number of
bytes consumed: `Inbound.judge` or `Outbound.judge`.
"""


class Socket(Protocol):
    """The methods of a `socket.socket` or a `TlsSocket` that a relay uses."""

    def fileno(self) -> int:
        """Return the descriptor to poll."""

    def recv_into(self, buffer: memoryview, nbytes: int = 0, /) -> int:
        """Read at most `nbytes` into the buffer, 0 for the size of the buffer; return the number of bytes, 0
        at the end of file. Raises OSError, BlockingIOError.
        """

    def recv(self, bufsize: int, flags: int, /) -> bytes:
        """Return up to `bufsize` bytes without consuming them (`flags` is MSG_PEEK). Raises OSError,
        BlockingIOError.
        """

    def send(self, data: memoryview | bytes, /) -> int:
        """Send some of the bytes, and return their number. Raises OSError, BlockingIOError."""

    def sendmsg(self, buffers: Sequence[memoryview | bytes], /) -> int:
        """Send some bytes of all buffers, and return their number. Raises OSError, BlockingIOError."""

    def shutdown(self, how: int, /) -> None:
        """Close the sending half (`how` is SHUT_WR). The caller may still read, and must discard the bytes.
        Raises OSError.
        """

    def close(self) -> None:
        """Close the socket."""


class Side(End):
    """One of a relay's two sockets, together with the bytes that were read from it and not consumed, and the
    bytes that it has not sent.
    """

    __slots__ = (
        "fd",
        "half",
        "interest",
        "judge",
        "own",
        "read_bytes",
        "received_bytes",
        "recv_into",
        "reset",
        "send",
        "sock",
        "unsent_bytes",
    )

    def __init__(self, sock: Socket, reset: CloseReason) -> None:
        """Begin with a connected socket, which the relay owns from now on; `reset` is the close reason if the
        socket breaks.
        """
        super().__init__()
        self.sock = sock
        self.fd = sock.fileno()
        self.recv_into = sock.recv_into
        self.send = sock.send
        self.judge: Judge = unconnected
        self.half: Half | None = None
        """The part of the connection that processes the bytes from this socket, if splicing is possible."""
        self.read_bytes = 0
        """Maximum number of bytes of the next read: fewer if the rest of a frame shall be spliced; else 0."""
        self.reset = reset
        self.own: bytearray | None = None
        """Buffer that holds the bytes in `kept`, if the reactor's shared buffer is too small for them; else
        None.
        """
        self.received_bytes = 0
        """Number of bytes read from this socket."""
        self.interest = READ
        self.unsent_bytes = 0
        """Size (bytes) of the buffer that holds the bytes in `unsent`."""

    @property
    def held_bytes(self) -> int:
        """Size (bytes) of the buffers that hold the bytes in `kept` and `unsent`."""
        return (len(self.kept) if self.own is None else len(self.own)) + self.unsent_bytes


def unconnected(_data: bytearray, _view: memoryview, _end: int, _now_ms: int) -> int:
    """Raise AssertionError. Takes the place of `Inbound.judge` or `Outbound.judge` in a side whose connection
    is not set yet or has ended, so that bytes read too early or too late show a bug.
    """
    raise AssertionError("a side without a connection")
