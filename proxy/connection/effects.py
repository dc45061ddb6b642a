"""What a connection wants from its transport: one object, reused, which the transport obeys."""

from __future__ import annotations

from proxy.close_reasons import CloseReason  # a field's type: mypyc wants it at run time


class Effects:
    """Written by the connection; the transport takes the bytes after each event, the rest when `changed`."""

    __slots__ = (
        "again",
        "changed",
        "close_detail",
        "close_reason",
        "deadline_ms",
        "read_broker",
        "read_client",
        "to_broker",
        "to_client",
    )

    def __init__(self) -> None:
        """Begin with both sides being read."""
        self.to_broker: list[memoryview | bytes] = []
        """Bytes to send now, in order: views of the buffer that the connection was given last."""
        self.to_client: list[memoryview | bytes] = []
        self.changed = False
        """True if the transport must call `Connection.settle`: the fields below may be out of date."""
        self.read_client = True
        """True if bytes from the client are of use now."""
        self.read_broker = True
        self.deadline_ms = 0
        """Time (ms) at which the transport must call `Connection.settle`; 0 for none."""
        self.again = False
        """True if the transport must call `Connection.begin_turn` in one of its next turns, and present the
        bytes that it has kept.
        """
        self.close_reason: CloseReason | None = None
        """Why both sides are to be closed now; None while they are not."""
        self.close_detail = ""
        """More about that, for the log."""

    def change(self) -> None:
        """Have the transport call `Connection.settle`."""
        self.changed = True


class End:
    """One end of a connection: what its transport holds of it. Written by the transport alone."""

    __slots__ = ("eof", "kept", "left", "unsent")

    def __init__(self) -> None:
        """Begin with nothing held."""
        self.kept: bytes | memoryview = b""
        """Bytes that were read from this end and that the connection has not consumed."""
        self.unsent: memoryview = NOTHING
        """Bytes for this end that its socket has not taken yet."""
        self.eof = False
        """True if all bytes from this end were read: it has closed its half."""
        self.left = False
        """True if this end is known to have closed its half, though bytes from it are still to be read."""


NOTHING = memoryview(b"")
