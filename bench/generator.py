"""The load generator: `python -m bench.generator`, a process of its own, started by `load.generate`.

It sends frames that others built, again and again, and only splits what comes back by length, so that it
costs less than what it measures. Each connection keeps `depth` requests under way: a closed loop. It also
reads the proxy's CPU time, at the very moments at which it begins and ends to count.
"""

from __future__ import annotations

import gc
import json
import select
import ssl
import sys
import time
from collections import deque
from dataclasses import asdict
from struct import Struct
from typing import Final

from bench.cpu import cpu_s, rss_bytes
from bench.entry import open_connection
from bench.load import SILENCE_S, Counted, Load, LoadError, Order
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
        """A cut length: to be put in front of the next bytes."""
        self._rest = 0
        """How much of a frame is still to come."""

    def ends(self, data: bytearray, count: int) -> int:
        """How many frames end within `data[:count]`, which begins with `kept`."""
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
    """Frames of one length, to be sent in turn without end."""

    def __init__(self, content: bytes, frames: int, depth: int) -> None:
        """`content` is all frames in a row; `depth` is how many are taken at once at most."""
        self.frames = frames
        self._frame_bytes = len(content) // frames
        whole = content * (1 + -(-depth // frames))
        self._whole = memoryview(whole)[: (frames + depth) * self._frame_bytes]

    def take(self, start: int, count: int) -> memoryview:
        """`count` frames from the one with index `start` on."""
        at = start * self._frame_bytes
        return self._whole[at : at + count * self._frame_bytes]


class Connection:
    """One connection in a closed loop."""

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
        """Connect and do what comes first; begin with the ring's frame `first`. Raises OSError."""
        self.sock = open_connection(load.host, load.port, load.entry, SILENCE_S, one_cipher=True)
        self.sock.setblocking(False)
        self.fd = self.sock.fileno()
        self.sent_at: deque[int] = deque()
        """When each unanswered request was sent, in ns."""
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
        """Read once; return how many responses that ended."""
        splitter = self._splitter
        kept = len(splitter.kept)
        try:
            if kept:
                self._buffer[:kept] = splitter.kept
                count = self._recv_into(self._view[kept:])
            else:
                count = self._recv_into(self._buffer)
        except BlockingIOError:  # TLS may have things of its own to say
            return 0
        if not count:
            raise LoadError("the target closed a connection")
        return splitter.ends(self._buffer, kept + count)

    def ask(self, requests: int, now_ns: int) -> None:
        """Send so many requests, or as much of them as the socket takes."""
        for _ in range(requests):
            self.sent_at.append(now_ns)
        if self._unsent:
            self._owed += requests
        else:
            self._push(self._take(requests))

    def flush(self) -> None:
        """Go on sending, now that the socket takes more."""
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
    """All connections of a process."""

    def __init__(self, load: Load, content: bytes, frames: int) -> None:
        """Connect them all, each beginning at another of the frames. Raises OSError."""
        ring = Ring(content, frames, load.depth)
        buffer = bytearray(BUFFER_BYTES)
        self._poll = select.epoll()
        self._connections: dict[int, Connection] = {}
        for index in range(load.connections):
            made = Connection(load, ring, index * frames // load.connections, buffer, self._poll)
            self._connections[made.fd] = made
        self._depth = load.depth

    def begin(self) -> None:
        """Send the first requests."""
        for connection in self._connections.values():
            connection.ask(self._depth, time.perf_counter_ns())

    def run(self, seconds: float) -> list[int]:
        """Keep going for so long; return the latency of each request answered meanwhile, in ns."""
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
                    if ended:
                        connection.ask(ended, now_ns)
                if events & select.EPOLLOUT:
                    connection.flush()
            now_ns = clock()
            if now_ns - heard_ns > SILENCE_S * _NS:
                raise LoadError(f"the target has not answered for {SILENCE_S:.0f} s")
        return latencies

    def drain(self) -> None:
        """Ask nothing more, wait for what is under way."""
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
    """Drive the target, in this process. Raises OSError, LoadError."""
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
    proxy_s = None if pid is None else cpu_s(pid)
    latencies = loop.run(load.seconds)
    used_s = None if pid is None or proxy_s is None else cpu_s(pid) - proxy_s
    seconds, own_s = time.perf_counter() - began_s, time.process_time() - own_s
    rss = None if pid is None else rss_bytes(pid)
    loop.drain()
    return Counted(seconds, dict(histogram(latencies)), own_s, used_s, rss)


def main() -> None:
    """One order on standard input, one result on standard output."""
    order, _, content = sys.stdin.buffer.read().partition(b"\n")
    gc.disable()
    try:
        counted = measure(Order.parse(order), content)
    except (OSError, LoadError) as error:
        sys.exit(str(error))
    print(json.dumps(asdict(counted)))


if __name__ == "__main__":
    main()
