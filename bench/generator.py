"""The load generator: `python -m bench.generator`, started by `generate`, a process of its own.

It sends one frame that others built, again and again, and only splits what comes back by length, so that it
costs less than what it measures. Each connection keeps `depth` requests under way: a closed loop. It also
reads the proxy's CPU time, at the very moments at which it begins and ends to count.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Final

from bench.cpu import cpu_s
from bench.stats import percentile

BUFFER_BYTES: Final = 1 << 20
SILENCE_S: Final = 20.0
"""How long a target may answer nothing at all before the run has failed."""
_LENGTH: Final = Struct(">i")
_NS: Final = 1_000_000_000


class LoadError(Exception):
    """A target did not answer, or closed a connection."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to do."""

    host: str
    port: int
    connections: int
    depth: int
    warm_up_s: float
    seconds: float
    pid: int | None
    """The process whose CPU time is wanted."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it, warm-up excluded."""

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    cpu_s: float | None
    """Of the proxy."""
    generator_cpu_s: float

    @property
    def requests_per_s(self) -> float:
        """Answered requests per second."""
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float | None:
        """CPU time of the proxy per request in µs."""
        return None if self.cpu_s is None else self.cpu_s / self.requests * 1e6

    @property
    def generator_busy(self) -> float:
        """Share of a core that the generator used: near 1 means that it was the bottleneck."""
        return self.generator_cpu_s / self.seconds


def generate(load: Load, frame: bytes) -> Measured:
    """Run a generator and return what it measured. Raises LoadError."""
    order = json.dumps(asdict(load)).encode() + b"\n" + frame
    command = [sys.executable, "-m", "bench.generator"]
    limit_s = load.warm_up_s + load.seconds + 3 * SILENCE_S
    try:
        done = subprocess.run(command, input=order, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise LoadError(f"the load generator did not end within {limit_s:.0f} s") from None
    if done.returncode:
        raise LoadError(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    return Measured(**json.loads(done.stdout))


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


class Connection:
    """One connection in a closed loop."""

    __slots__ = (
        "_batches",
        "_buffer",
        "_owed",
        "_poll",
        "_recv_into",
        "_send",
        "_splitter",
        "_unsent",
        "_view",
        "fd",
        "sent_at",
        "sock",
    )

    def __init__(self, load: Load, batches: list[memoryview], buffer: bytearray, poll: select.epoll) -> None:
        """Connect. `batches[n]` is n frames. Raises OSError."""
        self.sock = socket.create_connection((load.host, load.port), SILENCE_S)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fd = self.sock.fileno()
        self.sent_at: deque[int] = deque()
        """When each unanswered request was sent, in ns."""
        self._batches = batches
        self._buffer, self._view = buffer, memoryview(buffer)
        self._splitter = Splitter()
        self._unsent: memoryview = batches[0]
        self._owed = 0
        self._poll = poll
        self._recv_into, self._send = self.sock.recv_into, self.sock.send
        poll.register(self.fd, select.EPOLLIN)

    def receive(self) -> int:
        """Read once; return how many responses that ended."""
        splitter = self._splitter
        kept = len(splitter.kept)
        if kept:
            self._buffer[:kept] = splitter.kept
            count = self._recv_into(self._view[kept:])
        else:
            count = self._recv_into(self._buffer)
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
            self._push(self._batches[requests])

    def flush(self) -> None:
        """Go on sending, now that the socket takes more."""
        self._push(self._unsent)
        if not self._unsent and self._owed:
            owed, self._owed = self._owed, 0
            self._push(self._batches[owed])
        if not self._unsent:
            self._poll.modify(self.fd, select.EPOLLIN)

    def _push(self, data: memoryview) -> None:
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data) or self._unsent:
            self._unsent = data[sent:]
            self._poll.modify(self.fd, select.EPOLLIN | select.EPOLLOUT)


class Loop:
    """All connections of a run."""

    def __init__(self, load: Load, frame: bytes) -> None:
        """Connect them all. Raises OSError."""
        whole = memoryview(frame * load.depth)
        batches = [whole[: n * len(frame)] for n in range(load.depth + 1)]
        buffer = bytearray(BUFFER_BYTES)
        self._poll = select.epoll()
        made = [Connection(load, batches, buffer, self._poll) for _ in range(load.connections)]
        self._connections = {connection.fd: connection for connection in made}
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


def measure(load: Load, frame: bytes) -> Measured:
    """Drive the target, in this process. Raises OSError, LoadError."""
    loop = Loop(load, frame)
    try:
        loop.begin()
        loop.run(load.warm_up_s)
        return _measure(loop, load)
    finally:
        loop.close()


def _measure(loop: Loop, load: Load) -> Measured:
    began_s, own_s = time.perf_counter(), time.process_time()
    proxy_s = None if load.pid is None else cpu_s(load.pid)
    latencies = loop.run(load.seconds)
    used_s = None if load.pid is None or proxy_s is None else cpu_s(load.pid) - proxy_s
    seconds, own_s = time.perf_counter() - began_s, time.process_time() - own_s
    loop.drain()
    if not latencies:
        raise LoadError("not one answer while measuring")
    latencies.sort()
    p50_us, p99_us = percentile(latencies, 50) / 1000, percentile(latencies, 99) / 1000
    return Measured(len(latencies), seconds, p50_us, p99_us, used_s, own_s)


def main() -> None:
    """One order on standard input, one result on standard output."""
    order, _, frame = sys.stdin.buffer.read().partition(b"\n")
    gc.disable()
    try:
        measured = measure(Load(**json.loads(order)), frame)
    except (OSError, LoadError) as error:
        sys.exit(str(error))
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    main()
