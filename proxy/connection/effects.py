"""The interface between a connection and its transport: effects, the state of both sockets, and the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.proxy.close_reasons import CloseReason  # a field's type: mypyc wants it at run time

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import LimitedScan


class Effects:
    """The bytes that a connection has for its transport to send, and what else the transport must do. The
    connection reuses one object.

    After each event, the transport sends the bytes. If `changed`, it calls `Connection.settle` and obeys the
    other fields.
    """

    __slots__ = (
        "again",
        "changed",
        "close_detail",
        "close_reason",
        "deadline_ms",
        "read_broker",
        "read_client",
        "room_bytes",
        "to_broker",
        "to_client",
    )

    def __init__(self) -> None:
        self.to_broker: list[memoryview | bytes] = []
        """Bytes to send to the broker now, in order: views of the buffer that the connection processed last.
        """
        self.to_client: list[memoryview | bytes] = []
        """Bytes to send to the client now, in order: views of the buffer that the connection processed last.
        """
        self.changed = False
        """True if the transport must call `Connection.settle`: the fields below may be out of date."""
        self.read_client = True
        """True if the transport is to read from the client."""
        self.read_broker = True
        """True if the transport is to read from the broker."""
        self.room_bytes = UNLIMITED
        """Maximum number of bytes to read from the client now; `UNLIMITED` if it may send a new request."""
        self.deadline_ms = 0
        """Time (ms) at which the transport must call `Connection.settle`; 0 for no deadline."""
        self.again = False
        """True if frames wait for a later pass of the transport's loop. In that pass the transport must call
        `Connection.wake`.
        """
        self.close_reason: CloseReason | None = None
        """Reason why both sockets are to be closed now; None while the connection stays open."""
        self.close_detail = ""
        """Details of the close reason, for the log."""

    def change(self) -> None:
        """Set `changed`, so that the transport calls `Connection.settle`."""
        self.changed = True


class End:
    """The socket of one side of a connection, as its transport sees it. Only the transport writes the fields,
    except for `half` and the last three.
    """

    __slots__ = (
        "first_bytes",
        "half",
        "held_until_ms",
        "kept",
        "received_bytes",
        "rest_bytes",
        "turn",
        "unsent",
    )

    def __init__(self) -> None:
        self.kept: bytes | memoryview = b""
        """Bytes that were read from the socket and that the connection has not consumed."""
        self.unsent: memoryview = NOTHING
        """Bytes that the socket has not accepted for sending yet."""
        self.received_bytes = 0
        """Number of bytes received from the peer."""
        self.turn = -1
        """Latest turn of the reactor (`Clock.turn`) that has left complete frames of the peer, or a paused
        query, to the next turn. A turn processes a limited number of frames of each side.
        """
        self.half = SENDING
        """State of the peer's half of the connection: SENDING, LEAVING or ENDED."""
        self.rest_bytes = 0
        """Number of bytes still to arrive from the peer of the frame that is being forwarded. Those of a
        request are read in every state, even while the client is throttled.
        """
        self.first_bytes = FIRST_BYTES
        """Number of bytes to read of the next frame if it is large. The rest need not be seen."""
        self.held_until_ms = 0
        """Time (ms) until which bytes of the peer are held. A client: the rest of the request that is being
        forwarded, because it may contain the first records for a topic over its rate. A broker: a response
        whose addresses have no listeners yet.
        """


SENDING: Final = 0
"""The peer has not closed its half."""
LEAVING: Final = 1
"""The peer has closed its half. Bytes that it sent before may still have to be read."""
ENDED: Final = 2
"""The peer has closed its half, and all its bytes were read."""
UNLIMITED: Final = 2**31 - 1
"""Number of bytes to read that is larger than every buffer."""
FIRST_BYTES: Final = 16 * 1024
"""Number of bytes to read of a large frame whose rest is likely to be spliced: its fields before the records.
"""
TURN_FRAMES: Final = 32
"""Maximum number of frames of one side that a connection decides about in one turn (pass of the reactor's
loop). Further frames wait for a later turn, so that other connections are processed in between. 32 charged
requests take about 0.25 ms.
"""


SCANNED_ELEMENTS: Final = 5_000
"""Number of array elements of produce requests and of responses that are scanned in one turn: at most 2 ms
for topics, and as much for brokers' addresses.
"""
ELEMENTS_MIN: Final = 100
"""Number of elements that one scan may visit, though other scans of the turn have visited
`SCANNED_ELEMENTS`.
"""


class Clock:
    """Time in microseconds, for intervals shorter than the resolution of `now_ms`, and limits of a turn.

    The reactor sets all fields once per turn, and shares the clock with all connections.
    """

    __slots__ = ("frames_max", "now_us", "scanned", "turn")

    def __init__(self, now_us: int = 0) -> None:
        self.now_us = now_us
        self.turn = 0
        """Number of the present turn."""
        self.frames_max = TURN_FRAMES
        """Maximum number of frames of one side for which decisions are made in one turn."""
        self.scanned = 0
        """Number of elements that scans have visited in the present turn."""

    def elements_left(self) -> int:
        """Return the number of elements that a scan may visit in the present turn."""
        return max(SCANNED_ELEMENTS - self.scanned, ELEMENTS_MIN)

    def feed(self, scan: LimitedScan, data: bytearray, start: int, stop: int) -> int:
        """Feed the scan the next bytes, `data[start:stop]`, as many elements as the turn allows. Return the
        position behind the scanned bytes. Raises what the scan raises.
        """
        elements_max = self.elements_left()
        scanned_to = scan.feed(data, start, stop, elements_max)
        self.scanned += elements_max - scan.elements_left
        return scanned_to


NOTHING = memoryview(b"")
