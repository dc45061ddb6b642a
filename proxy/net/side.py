"""One side of a relay: one of its two sockets, and the bytes that wait in either direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.effects import End
from weir.proxy.net.poll import READ


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


class RelaySide(End):
    """One of a relay's two sockets, together with the bytes that were read from it and not consumed, and the
    bytes that it has not sent.
    """

    __slots__ = (
        "fd",
        "interest",
        "own",
        "read_bytes",
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
        self.read_bytes = 0
        """Maximum number of bytes of the next read: fewer if the rest of a frame shall be spliced; else 0."""
        self.reset = reset
        self.own: bytearray | None = None
        """Buffer that holds the bytes in `kept`, if the reactor's shared buffer is too small for them; else
        None.
        """
        self.interest = READ
        self.unsent_bytes = 0
        """Size (bytes) of the buffer that holds the bytes in `unsent`."""

    @property
    def held_bytes(self) -> int:
        """Size (bytes) of the buffers that hold the bytes in `kept` and `unsent`."""
        return (len(self.kept) if self.own is None else len(self.own)) + self.unsent_bytes
