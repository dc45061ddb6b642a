"""Open new connections at a steady rate, ask once on each, and close it."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bench import broker, canned
from bench.rows import ROWS
from bench.stats import Spread
from bench.workers.stand import Stand, stand
from tests.kafka.settings import HOST
from weir.protocol.framing import LENGTH, LENGTH_BYTES

ANSWER_S: Final = 10.0
"""Time (s) after which a connection counts as failed."""
REQUEST: Final = ROWS[0].request(canned.TOPICS)


@dataclass(slots=True)
class Churn:
    """Latencies, failures and CPU of new connections."""

    seconds: float = 0.0
    answered_s: list[float] = field(default_factory=list)
    """Times (s) from the moment at which a connection was due until its answer."""
    failures: list[str] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    """Share of a core that each process used: the supervisor's first."""

    @property
    def per_s(self) -> float:
        """Number of connections per second that got their answer."""
        return len(self.answered_s) / self.seconds

    @property
    def latency_ms(self) -> Spread:
        """Median, 99th percentile and greatest latency (ms)."""
        ordered = sorted(self.answered_s)
        at = [ordered[int(share * (len(ordered) - 1))] * 1000 for share in (0.5, 0.99, 1.0)]
        return Spread(*at)


def measure(workers: int, rate_per_s: int, seconds: float, say: Callable[[str], None]) -> Churn:
    """Open `rate_per_s` connections per second for `seconds`, over both brokers in turn. Raises
    TargetError, OSError.
    """
    with stand(workers) as behind:
        say(f"{rate_per_s:,} new connections per second for {seconds:.0f} s: {workers} worker(s)")
        for port in behind.ports:
            with broker.connect(port) as first:  # a worker starts to serve its broker
                broker.exchange(first, REQUEST)
        return _Clients(behind, rate_per_s, int(rate_per_s * seconds)).run()


class _Clients:
    """Connections that wait for their answers, in one poll: a client costs less than what is measured."""

    def __init__(self, behind: Stand, rate_per_s: int, count: int) -> None:
        self._behind = behind
        self._rate_per_s = rate_per_s
        self._count = count
        self._churn = Churn()
        self._poll = select.epoll()
        self._waiting: dict[int, tuple[socket.socket, float, bytes]] = {}
        """Socket, time (s) at which it was due, and bytes received so far, by descriptor."""
        self._order: deque[tuple[int, float]] = deque()
        """Descriptors and times (s) at which they were due, the oldest first."""

    def run(self) -> Churn:
        """Open all connections, each when it is due, and wait for the answers."""
        churn, opened = self._churn, 0
        before, began_s = self._behind.cpu_s(), time.monotonic()
        while opened < self._count or self._waiting:
            due_s = began_s + opened / self._rate_per_s
            wait_s = due_s - time.monotonic() if opened < self._count else ANSWER_S
            if wait_s <= 0:
                self._open(self._behind.ports[opened % len(self._behind.ports)], due_s)
                opened += 1
                wait_s = 0
            for fd, _events in self._poll.poll(wait_s):
                self._ready(fd)
            self._give_up()
        churn.seconds = time.monotonic() - began_s
        used = zip(self._behind.cpu_s(), before, strict=True)
        churn.shares = [(after - then) / churn.seconds for after, then in used]
        self._poll.close()
        return churn

    def _open(self, port: int, due_s: float) -> None:
        sock = socket.socket()
        try:
            sock.connect((HOST, port))  # the kernel answers for a listener at once
            sock.send(REQUEST.frame)
        except OSError as error:
            sock.close()
            self._churn.failures.append(str(error))
            return
        sock.setblocking(False)
        self._poll.register(sock, select.EPOLLIN)
        self._waiting[sock.fileno()] = sock, due_s, b""
        self._order.append((sock.fileno(), due_s))

    def _ready(self, fd: int) -> None:
        sock, due_s, received = self._waiting[fd]
        try:
            more = sock.recv(1 << 16)
        except OSError as error:
            self._end(fd, str(error))
            return
        received += more
        if not more:
            self._end(fd, "the connection ended before its answer")
        elif len(received) >= LENGTH_BYTES + LENGTH.unpack_from(received)[0]:
            self._churn.answered_s.append(time.monotonic() - due_s)
            self._end(fd)
        else:
            self._waiting[fd] = sock, due_s, received

    def _end(self, fd: int, failure: str = "") -> None:
        self._waiting.pop(fd)[0].close()
        if failure:
            self._churn.failures.append(failure)

    def _give_up(self) -> None:
        """End connections that have waited too long."""
        while self._order and self._order[0][1] < time.monotonic() - ANSWER_S:
            fd, due_s = self._order.popleft()
            if fd in self._waiting and self._waiting[fd][1] == due_s:
                self._end(fd, f"no answer within {ANSWER_S:.0f} s")
