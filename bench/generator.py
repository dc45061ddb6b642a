"""The load generator, a process that `load.generate` starts: `python -m bench.generator`.

The load generator sends prepared frames repeatedly, and only splits the responses by their length fields, so
that it needs less CPU time than a proxy. Each connection is a closed loop with `depth` requests in flight. At
the beginning and the end of the measurement, the load generator also reads the proxy's CPU time.
"""

from __future__ import annotations

import select
import ssl
import time
from collections import deque
from struct import Struct
from typing import Final

from bench.cpu import cpu_s_by_process, rss_bytes
from bench.entry import open_connection
from bench.load import SILENCE_S, Counted, Load, LoadError, Order, serve
from bench.stats import histogram
from bench.tls_stream import TlsStream

BUFFER_BYTES: Final = 1 << 20
_LENGTH: Final = Struct(">i")
_NS: Final = 1_000_000_000


class Splitter:
    """Counts the frames that end in a stream of bytes."""

    __slots__ = ("_rest", "kept")

    def __init__(self) -> None:
        self.kept = b""
        """The beginning of a length field that has not arrived completely; put these bytes before the next
        bytes of the stream.
        """
        self._rest = 0
        """Number of bytes of the current frame that have not arrived yet."""

    def ends(self, data: bytearray, count: int) -> int:
        """Return the number of frames that end within `data[:count]`, which must begin with `kept`."""
        at = self._rest
        ended = 1 if 0 < at <= count else 0
        while at + _LENGTH.size <= count:
            at += _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            ended += at <= count
        if at >= count:
            self._rest = at - count
            self.kept = b""
        else:
            self._rest = 0
            self.kept = bytes(data[at:count])
        return ended


class Ring:
    """Request frames of equal length, which connections send in turn, from the last again to the first."""

    def __init__(self, content: bytes, frames: int, depth: int) -> None:
        """Keep the frames. `content` has all frames in a row, `frames` is their number, and `depth` is the
        maximum number of frames that `take` returns.
        """
        self.frames = frames
        self._frame_bytes = len(content) // frames
        whole = content * (1 + -(-depth // frames))
        self._whole = memoryview(whole)[: (frames + depth) * self._frame_bytes]

    def take(self, start: int, count: int) -> memoryview:
        """Return `count` frames in a row, from the frame with index `start`."""
        at = start * self._frame_bytes
        return self._whole[at : at + count * self._frame_bytes]


class Connection:
    """One connection that sends a new request for each response (closed loop)."""

    __slots__ = (
        "_buffer",
        "_next",
        "_owed",
        "_poll",
        "_recv_into",
        "_ring",
        "_send",
        "_splitter",
        "_unsent",
        "_view",
        "fd",
        "sent_at",
        "sock",
    )

    def __init__(self, load: Load, ring: Ring, first: int, buffer: bytearray, poll: select.epoll) -> None:
        """Connect, with the TLS handshake and authentication of `load.entry`. The first request to send is
        the ring's frame `first`. Raises OSError.
        """
        self.sock = open_connection(load.host, load.port, load.entry, SILENCE_S, one_cipher=True)
        self.sock.setblocking(False)
        self.fd = self.sock.fileno()
        self.sent_at: deque[int] = deque()
        """Times (ns, perf_counter) at which the requests in flight were sent, oldest first."""
        self._ring, self._next = ring, first % ring.frames
        self._buffer, self._view = buffer, memoryview(buffer)
        self._splitter = Splitter()
        self._unsent = ring.take(0, 0)
        self._owed = 0
        self._poll = poll
        stream = TlsStream(self.sock) if isinstance(self.sock, ssl.SSLSocket) else self.sock
        self._recv_into, self._send = stream.recv_into, stream.send
        poll.register(self.fd, select.EPOLLIN)

    def receive(self) -> int:
        """Read once; return the number of responses that end in the bytes read. Raises LoadError if the
        target closed the connection.
        """
        splitter = self._splitter
        kept = len(splitter.kept)
        try:
            if kept:
                self._buffer[:kept] = splitter.kept
                count = self._recv_into(self._view[kept:])
            else:
                count = self._recv_into(self._buffer)
        except BlockingIOError:  # TLS may have received a record of its own, such as a session ticket
            return 0
        if not count:
            raise LoadError("the target closed a connection")
        return splitter.ends(self._buffer, kept + count)

    def ask(self, requests: int, now_ns: int) -> None:
        """Send this number of requests. If the socket takes only a part, `flush` sends the other bytes."""
        for _ in range(requests):
            self.sent_at.append(now_ns)
        if self._unsent:
            self._owed += requests
        else:
            self._push(self._take(requests))

    def flush(self) -> None:
        """Send more of the bytes that the socket did not take; call this when the socket is writable."""
        self._push(self._unsent)
        if not self._unsent and self._owed:
            owed, self._owed = self._owed, 0
            self._push(self._take(owed))
        if not self._unsent:
            self._poll.modify(self.fd, select.EPOLLIN)

    def _take(self, requests: int) -> memoryview:
        ring, first = self._ring, self._next
        self._next = (first + requests) % ring.frames
        return ring.take(first, requests)

    def _push(self, data: memoryview) -> None:
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data) or self._unsent:
            self._unsent = data[sent:]
            self._poll.modify(self.fd, select.EPOLLIN | select.EPOLLOUT)


class Loop:
    """All connections of one load generator process."""

    def __init__(self, load: Load, content: bytes, frames: int) -> None:
        """Open all connections; each begins with a different frame of the ring. Raises OSError."""
        self._load, self._ring = load, Ring(content, frames, load.depth)
        self._buffer = bytearray(BUFFER_BYTES)
        self._poll = select.epoll()
        self._connections: dict[int, Connection] = {}
        for index in range(load.connections):
            self._connect(index * frames // load.connections)

    def _connect(self, first: int) -> Connection:
        made = Connection(self._load, self._ring, first, self._buffer, self._poll)
        self._connections[made.fd] = made
        return made

    def _reconnect(self, connection: Connection) -> Connection:
        del self._connections[connection.fd]
        connection.sock.close()
        return self._connect(0)

    def begin(self) -> None:
        """Send the first `depth` requests on each connection."""
        for connection in self._connections.values():
            connection.ask(self._load.depth, time.perf_counter_ns())

    def run(self, seconds: float) -> list[int]:
        """Send and receive for `seconds`; return the latencies (ns) of the requests answered in this time.
        Raises LoadError.
        """
        latencies: list[int] = []
        clock, poll, connections = time.perf_counter_ns, self._poll.poll, self._connections
        now_ns = heard_ns = clock()
        until_ns = now_ns + int(seconds * _NS)
        while now_ns < until_ns:
            for fd, events in poll(1.0):
                connection = connections[fd]
                heard_ns = now_ns = clock()
                if events & ~select.EPOLLOUT:
                    ended = connection.receive()
                    sent_at = connection.sent_at
                    latencies += [now_ns - sent_at.popleft() for _ in range(ended)]
                    if ended and self._load.reconnects:
                        connection = self._reconnect(connection)
                    if ended:
                        connection.ask(ended, now_ns)
                if events & select.EPOLLOUT:
                    connection.flush()
            now_ns = clock()
            if now_ns - heard_ns > SILENCE_S * _NS:
                raise LoadError(f"the target has not answered for {SILENCE_S:.0f} s")
        return latencies

    def drain(self) -> None:
        """Wait for the responses to all requests in flight, at most SILENCE_S, without sending further
        requests.
        """
        until_s = time.monotonic() + SILENCE_S
        while any(c.sent_at for c in self._connections.values()) and time.monotonic() < until_s:
            for fd, events in self._poll.poll(1.0):
                connection = self._connections[fd]
                if events & ~select.EPOLLOUT:
                    for _ in range(connection.receive()):
                        connection.sent_at.popleft()
                if events & select.EPOLLOUT:
                    connection.flush()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.sock.close()
        self._poll.close()


def measure(order: Order, content: bytes) -> Counted:
    """Warm up the target until `order.begin_s`, then measure. Raises OSError, LoadError."""
    loop = Loop(order.load, content, order.frames)
    try:
        loop.begin()
        loop.run(max(order.begin_s - time.monotonic(), 0.0))
        return _count(loop, order.load)
    finally:
        loop.close()


def _count(loop: Loop, load: Load) -> Counted:
    pid = load.pid
    began_s, own_s = time.perf_counter(), time.process_time()
    before = {} if pid is None else cpu_s_by_process(pid)
    latencies = loop.run(load.seconds)
    after = {} if pid is None else cpu_s_by_process(pid)
    used_s = [at_s - before.get(process, 0.0) for process, at_s in after.items()] or [0.0]
    seconds, own_s = time.perf_counter() - began_s, time.process_time() - own_s
    rss = None if pid is None else rss_bytes(pid)
    loop.drain()
    total_s, busiest_s = (None, None) if pid is None else (sum(used_s), max(used_s))
    return Counted(seconds, dict(histogram(latencies)), own_s, total_s, busiest_s, rss)


if __name__ == "__main__":
    serve(measure)
