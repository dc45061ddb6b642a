"""Reassembles TCP connections from segments that were retransmitted, reordered or lost.

Bytes of a side are delivered in the order of sequence numbers. Bytes that acknowledge bytes of the other side
are delivered behind these: the capture may have them in another order (two queues of a network card, a mirror
port), or lack some. `Dropped` takes the place of missing bytes once:

- more than `WAITING_BYTES_MAX` wait behind them;
- `LATE_NS` have passed since the other side acknowledged them, so no retransmission follows;
- the connection, or the capture, ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side

WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum memory (bytes) of a connection's segments that wait for an earlier one: about the largest window of
a receiver.
"""
LATE_NS: Final = 1_000_000_000
"""Time (ns) in which acknowledged bytes may still come: packets of several queues and interfaces are written
in blocks.
"""
CONNECTIONS_MAX: Final = 100_000
"""Maximum number of open connections; the one that has been silent longest is ended for another."""
WINDOW_BYTES_MAX: Final = 2**30
"""Maximum number of bytes that TCP sends before an acknowledgement (RFC 7323). Numbers beyond are forged."""
SEGMENT_BYTES: Final = 100
"""Memory (bytes) of a waiting segment without its data, about."""
_MODULUS: Final = 2**32
_HALF: Final = 2**31


class TcpEndpoint(NamedTuple):
    """One end of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Segment(NamedTuple):
    """One TCP segment."""

    time_ns: int
    source: TcpEndpoint
    target: TcpEndpoint
    sequence: int
    data: bytes = b""
    syn: bool = False
    fin: bool = False
    rst: bool = False
    acknowledged: int | None = None
    """Sequence number of the next byte that the source expects; None without the flag ACK."""
    cut: int = 0
    """Number of bytes behind `data` that the capture lacks, because it cut the packet."""


class Reassembly:
    """The connections of a sequence of segments."""

    def __init__(self, ports: frozenset[int] = frozenset()) -> None:
        """`ports`: the brokers' ports; connections without them are ignored. If empty, the broker is the end
        to which the connection was opened; if the opening is missing, the end with the lower port.
        """
        self._ports = ports
        self._connections: dict[frozenset[TcpEndpoint], _TcpConnection] = {}
        """Open connections; that of the latest segment is the last."""
        self._opened = 0
        self._time_ns = 0

    def feed(self, segment: Segment) -> Iterator[Event]:
        """Return the events that this segment completes; their times do not decrease."""
        ends = frozenset((segment.source, segment.target))
        self._time_ns = max(self._time_ns, segment.time_ns)
        connection = self._connections.pop(ends, None)
        if connection is not None and segment.syn and connection.is_replaced_by(segment):
            yield from connection.finish(self._time_ns)
            connection = None
        if connection is None:
            client = self._client(segment)
            if client is None or not (segment.syn or segment.data):
                return
            connection = _TcpConnection(self._opened, client)
            self._opened += 1
            if len(self._connections) >= CONNECTIONS_MAX:
                yield from self._connections.pop(next(iter(self._connections))).finish(self._time_ns)
            server = segment.target if client == segment.source else segment.source
            yield Opened(connection.number, self._time_ns, str(client), str(server))
        yield from connection.feed(segment, self._time_ns)
        if not connection.is_closed:
            self._connections[ends] = connection

    def finish(self) -> Iterator[Event]:
        """Return the events of the bytes that still wait for missing ones."""
        for connection in self._connections.values():
            yield from connection.finish(self._time_ns)
        self._connections.clear()

    def _client(self, segment: Segment) -> TcpEndpoint | None:
        """Return the client of a new connection; None if no end is a broker's."""
        if self._ports:
            if segment.target.port in self._ports:
                return segment.source
            return segment.target if segment.source.port in self._ports else None
        if segment.syn:
            return segment.source if segment.acknowledged is None else segment.target
        return max(segment.source, segment.target, key=lambda end: end.port)


class _TcpConnection:
    """One connection."""

    def __init__(self, number: int, client: TcpEndpoint) -> None:
        self.number = number
        self._client = client
        client_half, server_half = (_Half(number, side) for side in Side)
        client_half.peer, server_half.peer = server_half, client_half
        self._halves = (client_half, server_half)

    @property
    def is_closed(self) -> bool:
        """True once both sides have ended."""
        return all(half.ended for half in self._halves)

    def is_replaced_by(self, syn: Segment) -> bool:
        """Return True if the SYN opens a new connection between the same ends, and is no retransmission."""
        first = self._half(syn).first
        return first is not None and first != (syn.sequence + 1) % _MODULUS

    def feed(self, segment: Segment, time_ns: int) -> Iterator[Event]:
        """Return the events that this segment completes."""
        half = self._half(segment)
        yield from half.take(segment, time_ns)
        yield from self._deliver(time_ns)
        while sum(half.waiting_bytes for half in self._halves) > WAITING_BYTES_MAX:
            yield from self._give_up(time_ns)
        for half in self._halves:
            if half.is_late(time_ns):
                yield from half.skip_gap(time_ns)
                yield from self._deliver(time_ns)
        if segment.rst:
            yield from self.finish(time_ns)

    def finish(self, time_ns: int) -> Iterator[Event]:
        """Return the events of waiting bytes, and the end of sides that have not ended."""
        while any(half.is_waiting for half in self._halves):
            yield from self._give_up(time_ns)
        for half in self._halves:
            yield from half.finish(time_ns)

    def _half(self, segment: Segment) -> _Half:
        return self._halves[Side.CLIENT if segment.source == self._client else Side.SERVER]

    def _deliver(self, time_ns: int) -> Iterator[Event]:
        """Return all that waits for nothing more. What one side delivers, the other may wait for."""
        progress = True
        while progress:
            progress = False
            for half in self._halves:
                for event in half.deliver(time_ns):
                    progress = True
                    yield event

    def _give_up(self, time_ns: int) -> Iterator[Event]:
        """Declare the next missing bytes lost, of the side that waits least for the other, and deliver the
        bytes behind them. If no bytes are missing, acknowledgements contradict each other: ignore the next.
        """
        gaps = [half for half in self._halves if half.gap]
        if gaps:
            yield from min(gaps, key=lambda half: half.is_held).skip_gap(time_ns)
        else:
            for half in self._halves:
                half.release()
        yield from self._deliver(time_ns)


class _Waiting(NamedTuple):
    """Data that waits for earlier bytes of either side."""

    data: bytes
    needed: int
    """Number of bytes of the other side that its sender had received."""


class _Half:
    """The bytes of one side."""

    peer: _Half

    def __init__(self, number: int, side: Side) -> None:
        self.first: int | None = None
        """Sequence number of the first byte; None before a segment."""
        self.ended = False
        self.delivered = 0
        """Number of bytes that were delivered or dropped."""
        self.waiting_bytes = 0
        """Memory (bytes) of segments that wait."""
        self._number, self._side = number, side
        self._opened = False
        """True if the first byte is known from the opening."""
        self._sent = 0
        """Number of bytes that the side has certainly sent: captured, cut, or acknowledged."""
        self._acknowledged = 0
        """Number of bytes that the other side has acknowledged."""
        self._late_ns: int | None = None
        """Time (ns) at which acknowledged bytes count as lost; None if none is missing."""
        self._waiting: dict[int, _Waiting] = {}
        """Data that waits, by the offset of its first byte."""
        self._order: list[int] = []
        """Heap of these offsets."""
        self._end: int | None = None
        """Offset of the side's end; None before a FIN."""
        self._end_needed = 0
        """Number of bytes of the other side that it had received at its end."""

    def take(self, segment: Segment, time_ns: int) -> Iterator[Event]:
        """Keep the data of a segment of this side. Its events say that the first bytes are unknown."""
        if self.ended:
            return
        if self.first is None:
            self.first = (segment.sequence + segment.syn) % _MODULUS
            self._opened = segment.syn
            if not segment.syn:
                yield Dropped(self._number, time_ns, self._side, 1)  # their number is unknown
        offset = self._offset(segment.sequence + segment.syn)
        needed = self._needed(segment, offset, time_ns)
        if segment.data:
            self._keep(offset, segment.data, needed)
        end = offset + len(segment.data) + segment.cut
        if segment.data or segment.cut:
            self._sent = max(self._sent, end)
        if segment.fin:
            self._end, self._end_needed = end, needed
            self._sent, self._acknowledged = end, min(end, self._acknowledged)  # it may be acknowledged

    def _needed(self, segment: Segment, offset: int, time_ns: int) -> int:
        """Return the number of bytes of the other side that the segment's sender had received."""
        peer = self.peer
        if segment.acknowledged is None:
            return 0
        if peer.first is None:
            if not self._opened or offset:
                return 0
            # The server answers a SYN, and speaks first in no protocol of Kafka: nothing was sent before.
            peer.first, peer._opened = segment.acknowledged, True
        return peer.acknowledge(segment.acknowledged, time_ns)

    def acknowledge(self, sequence: int, time_ns: int) -> int:
        """Take an acknowledgement by the other side. Return the number of bytes that it acknowledges."""
        count = self._offset(sequence)
        if self._end is not None:
            count = min(count, self._end)  # an acknowledged FIN counts as one byte
        if not 0 < count <= self.delivered + WINDOW_BYTES_MAX:
            return 0
        self._acknowledged, self._sent = max(self._acknowledged, count), max(self._sent, count)
        if self._late_ns is None and self.delivered < self._acknowledged:
            self._late_ns = time_ns + LATE_NS
        return count

    def is_late(self, time_ns: int) -> bool:
        """Return True if acknowledged bytes will not come any more."""
        return self._late_ns is not None and time_ns > self._late_ns and not self.ended

    @property
    def is_waiting(self) -> bool:
        """True if data waits."""
        return bool(self._order)

    @property
    def gap(self) -> int:
        """Number of next bytes that are missing: up to the next data that waits, or up to the last bytes that
        the other side acknowledged; 0 if none is known to be missing.
        """
        if self.ended:
            return 0
        ends = self._order[:1]
        if self.delivered < self._acknowledged:
            ends.append(self._acknowledged)
        return max(0, min(ends, default=0) - self.delivered)

    @property
    def needed(self) -> int:
        """Number of bytes of the other side for which the next data waits."""
        return self._waiting[self._order[0]].needed if self._order else self._end_needed

    @property
    def is_held(self) -> bool:
        """True if the next data waits for bytes of the other side."""
        return not self.peer.ended and self.peer.delivered < self.needed

    def release(self) -> None:
        """Let the next data wait for no bytes of the other side."""
        self._end_needed = 0
        if self._order:
            first = self._order[0]
            self._waiting[first] = self._waiting[first]._replace(needed=0)

    def finish(self, time_ns: int) -> Iterator[Event]:
        """Return the side's end, where no data waits."""
        if self.ended:
            return
        if self.delivered < self._sent:
            yield Dropped(self._number, time_ns, self._side, self._sent - self.delivered)
        yield self._closed(time_ns)

    def _closed(self, time_ns: int) -> Event:
        self.ended = True
        self._waiting.clear()
        self._order.clear()
        self.waiting_bytes = 0
        return Closed(self._number, time_ns, self._side)

    def _offset(self, sequence: int) -> int:
        """Return the offset of a sequence number from the side's first byte, where sequence numbers wrap
        around after 2^32 bytes.
        """
        assert self.first is not None
        expected = (self.first + self.delivered) % _MODULUS
        distance = (sequence - expected) % _MODULUS
        return self.delivered + (distance if distance < _HALF else distance - _MODULUS)

    def _keep(self, offset: int, data: bytes, needed: int) -> None:
        """Keep the data that was not delivered; of two segments at the same offset the longer one."""
        if offset < self.delivered:
            data, offset = data[self.delivered - offset :], self.delivered
        known = self._waiting.get(offset)
        if not data or (known is not None and len(known.data) >= len(data)):
            return
        if known is None:
            heappush(self._order, offset)
            self.waiting_bytes += SEGMENT_BYTES + len(data)
        else:
            self.waiting_bytes += len(data) - len(known.data)
            needed = min(needed, known.needed)
        self._waiting[offset] = _Waiting(data, needed)

    def deliver(self, time_ns: int) -> Iterator[Event]:
        """Return the bytes that are next, each once, and the end behind them."""
        while self._order and self._order[0] <= self.delivered and not self.is_held:
            offset = heappop(self._order)
            data = self._waiting.pop(offset).data
            self.waiting_bytes -= len(data) + SEGMENT_BYTES
            data = data[self.delivered - offset :]
            if data:
                self._advance(len(data), time_ns)
                yield Bytes(self._number, time_ns, self._side, data)
        is_complete = self._end is not None and self.delivered >= self._end
        if is_complete and not (self.ended or self.is_held):
            yield self._closed(time_ns)

    def skip_gap(self, time_ns: int) -> Iterator[Event]:
        """Declare the bytes before the next data that waits lost."""
        count = self.gap
        self._advance(count, time_ns)
        yield Dropped(self._number, time_ns, self._side, count)

    def _advance(self, count: int, time_ns: int) -> None:
        """Count delivered or dropped bytes. Later missing bytes have their own time to come."""
        self.delivered += count
        is_missing = self.delivered < self._acknowledged
        self._late_ns = time_ns + LATE_NS if is_missing else None
