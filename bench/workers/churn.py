"""Open new connections at a steady rate, ask once on each, and close it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from bench import canned
from bench.rows import ROWS
from bench.stats import Spread
from bench.workers.stand import Stand, stand
from tests.kafka.settings import HOST
from weir.protocol.framing import LENGTH, LENGTH_BYTES

ANSWER_S: Final = 10.0
"""Time (s) after which a connection counts as failed."""
REQUEST: Final = ROWS[0].request(canned.TOPICS).frame


@dataclass(slots=True)
class Churn:
    """What new connections cost, and how many failed."""

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
        return trio.run(_churn, behind, rate_per_s, seconds)


async def _churn(behind: Stand, rate_per_s: int, seconds: float) -> Churn:
    churn = Churn()
    for port in behind.ports:
        await _connection(Churn(), port, trio.current_time())  # a worker starts to serve its broker
    before, began_s = behind.cpu_s(), trio.current_time()
    async with trio.open_nursery() as nursery:
        for index in range(int(rate_per_s * seconds)):
            due_s = began_s + index / rate_per_s
            await trio.sleep_until(due_s)
            nursery.start_soon(_connection, churn, behind.ports[index % len(behind.ports)], due_s)
    churn.seconds = trio.current_time() - began_s
    used = zip(behind.cpu_s(), before, strict=True)
    churn.shares = [(after - then) / churn.seconds for after, then in used]
    return churn


async def _connection(churn: Churn, port: int, due_s: float) -> None:
    """Connect, ask, and wait for the whole answer."""
    try:
        with trio.fail_after(ANSWER_S), trio.socket.socket() as connection:
            await connection.connect((HOST, port))
            await connection.send(REQUEST)
            await _answer(connection)
            churn.answered_s.append(trio.current_time() - due_s)
    except (OSError, trio.TooSlowError) as error:
        churn.failures.append(f"{type(error).__name__}: {error}")


async def _answer(connection: trio.socket.SocketType) -> None:
    received = b""
    while len(received) < LENGTH_BYTES or len(received) < LENGTH_BYTES + LENGTH.unpack_from(received)[0]:
        more = await connection.recv(1 << 16)
        if not more:
            raise OSError("the connection ended before its answer")
        received += more
