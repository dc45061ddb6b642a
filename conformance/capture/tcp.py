"""Reassembles TCP connections from segments that were retransmitted, reordered or lost.

Bytes are delivered in the order of sequence numbers. A gap is declared lost when more than
`WAITING_BYTES_MAX` wait behind it, or when the capture ends: `Dropped` then takes the place of the missing
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side

WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum memory (bytes) of one side's segments that wait for an earlier one: about the largest window of a
receiver.
"""
SEGMENT_BYTES: Final = 100
"""Memory (bytes) of a waiting segment without its data, about."""
_MODULUS: Final = 2**32
_HALF: Final = 2**31


class Endpoint(NamedTuple):
    """One end of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Segment(NamedTuple):
    """One TCP segment."""

    time_ns: int
    source: Endpoint
    target: Endpoint
    sequence: int
    data: bytes = b""
    syn: bool = False
    ack: bool = False
    fin: bool = False
    rst: bool = False


class Reassembly:
    """The connections of a sequence of segments."""

    def __init__(self, ports: frozenset[int] = frozenset()) -> None:
        """`ports`: the brokers' ports; connections without them are ignored. If empty, the broker is the end
        to which the connection was opened; if the opening is missing, the end with the lower port.
        """
        self._ports = ports
        self._connections: dict[frozenset[Endpoint], _Connection] = {}
        self._opened = 0
        self._time_ns = 0

    def feed(self, segment: Segment) -> Iterator[Event]:
        """Return the events that this segment completes; their times do not decrease."""
        ends = frozenset((segment.source, segment.target))
        self._time_ns = max(self._time_ns, segment.time_ns)
        connection = self._connections.get(ends)
        if connection is not None and segment.syn and connection.is_replaced_by(segment):
            yield from connection.finish(self._time_ns)
            connection = None
        if connection is None:
            client = self._client(segment)
            if client is None or not (segment.syn or segment.data):
                return
            connection = _Connection(self._opened, client)
            self._opened += 1
            self._connections[ends] = connection
            server = segment.target if client == segment.source else segment.source
            yield Opened(connection.number, self._time_ns, str(client), str(server))
        yield from connection.feed(segment, self._time_ns)
        if connection.is_closed:
            del self._connections[ends]

    def finish(self) -> Iterator[Event]:
        """Return the events of the bytes that still wait for missing ones."""
        for connection in self._connections.values():
            yield from connection.finish(self._time_ns)
        self._connections.clear()

    def _client(self, segment: Segment) -> Endpoint | None:
        """Return the client of a new connection; None if no end is a broker's."""
        if self._ports:
            if segment.target.port in self._ports:
                return segment.source
            return segment.target if segment.source.port in self._ports else None
        if segment.syn:
            return segment.target if segment.ack else segment.source
        return max(segment.source, segment.target, key=lambda end: end.port)


class _Connection:
    """One connection."""

    def __init__(self, number: int, client: Endpoint) -> None:
        self.number = number
        self._client = client
        self._halves = {side: _Half(number, side) for side in Side}

    @property
    def is_closed(self) -> bool:
        """True once both sides have ended."""
        return all(half.ended for half in self._halves.values())

    def is_replaced_by(self, syn: Segment) -> bool:
        """Return True if the SYN opens a new connection between the same ends, and is no retransmission."""
        first = self._half(syn).first
        return first is not None and first != (syn.sequence + 1) % _MODULUS

    def feed(self, segment: Segment, time_ns: int) -> Iterator[Event]:
        """Return the events that this segment completes."""
        yield from self._half(segment).feed(segment, time_ns)
        if segment.rst:
            yield from self.finish(time_ns)

    def finish(self, time_ns: int) -> Iterator[Event]:
        """Return the events of waiting bytes, and the end of sides that have not ended."""
        for half in self._halves.values():
            yield from half.finish(time_ns)

    def _half(self, segment: Segment) -> _Half:
        return self._halves[Side.CLIENT if segment.source == self._client else Side.SERVER]


class _Half:
    """The bytes of one side."""

    def __init__(self, number: int, side: Side) -> None:
        self.first: int | None = None
        """Sequence number of the first byte; None before a segment."""
        self.ended = False
        self._number, self._side = number, side
        self._delivered = 0
        """Number of bytes that were delivered or dropped."""
        self._waiting: dict[int, bytes] = {}
        """Data of segments behind a gap, by the offset of their first byte."""
        self._order: list[int] = []
        """Heap of these offsets."""
        self._waiting_bytes = 0
        self._end: int | None = None
        """Offset of the side's end; None before a FIN."""

    def feed(self, segment: Segment, time_ns: int) -> Iterator[Event]:
        """Return the events that this segment of the side completes."""
        if self.ended:
            return
        if self.first is None:
            self.first = (segment.sequence + segment.syn) % _MODULUS
            if not segment.syn:
                yield Dropped(self._number, time_ns, self._side, 1)  # their number is unknown
        offset = self._offset(segment)
        if segment.data:
            self._keep(offset, segment.data)
        if segment.fin:
            self._end = offset + len(segment.data)
        yield from self._deliver(time_ns)
        while self._waiting_bytes > WAITING_BYTES_MAX:
            yield from self._skip_gap(time_ns)
        if self._end is not None and self._delivered >= self._end:
            yield from self._close(time_ns)

    def finish(self, time_ns: int) -> Iterator[Event]:
        """Return the events of waiting bytes, and the side's end."""
        if self.ended:
            return
        while self._order:
            yield from self._skip_gap(time_ns)
        yield from self._close(time_ns)

    def _close(self, time_ns: int) -> Iterator[Event]:
        self.ended = True
        self._waiting.clear()
        yield Closed(self._number, time_ns, self._side)

    def _offset(self, segment: Segment) -> int:
        """Return the offset of the segment's data from the side's first byte, where sequence numbers wrap
        around after 2^32 bytes.
        """
        assert self.first is not None
        expected = (self.first + self._delivered) % _MODULUS
        distance = (segment.sequence + segment.syn - expected) % _MODULUS
        return self._delivered + (distance if distance < _HALF else distance - _MODULUS)

    def _keep(self, offset: int, data: bytes) -> None:
        """Keep the data that was not delivered; of two segments at the same offset the longer one."""
        if offset < self._delivered:
            data, offset = data[self._delivered - offset :], self._delivered
        known = self._waiting.get(offset)
        if not data or (known is not None and len(known) >= len(data)):
            return
        if known is None:
            heappush(self._order, offset)
            self._waiting_bytes += SEGMENT_BYTES
        self._waiting_bytes += len(data) - len(known or b"")
        self._waiting[offset] = data

    def _deliver(self, time_ns: int) -> Iterator[Event]:
        """Return the bytes that are next, each once."""
        while self._order and self._order[0] <= self._delivered:
            offset = heappop(self._order)
            data = self._waiting.pop(offset)
            self._waiting_bytes -= len(data) + SEGMENT_BYTES
            data = data[self._delivered - offset :]
            if data:
                self._delivered += len(data)
                yield Bytes(self._number, time_ns, self._side, data)

    def _skip_gap(self, time_ns: int) -> Iterator[Event]:
        """Declare the bytes before the first waiting segment lost."""
        first = self._order[0]
        yield Dropped(self._number, time_ns, self._side, first - self._delivered)
        self._delivered = first
        yield from self._deliver(time_ns)
