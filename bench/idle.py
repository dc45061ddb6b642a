"""Measure the cost of idle connections: a proxy's memory before and after many connections were opened. Each
connection sends one request, and then stays open.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final

from bench import broker
from bench.cpu import cpu_s, rss_bytes
from bench.measure import Say, Upstream
from bench.rows import ROWS
from bench.targets import Running, Surroundings, Target
from tests.hostile.files import raise_descriptor_limit
from tests.kafka.processes import Processes
from weir.calibration.frames import Request

SPARE_DESCRIPTORS: Final = 200
WARM_UP: Final = 500
"""Number of connections opened and closed before the first reading of memory, so that memory for code and
caches that the first connections load is not counted.
"""
SETTLE_S: Final = 2.0
WATCH_S: Final = 5.0
HURRY_S: Final = 0.1
"""Time (s) used instead of SETTLE_S and WATCH_S with `--hurry`, if the figures do not matter."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Memory and CPU time of one target with idle connections."""

    connections: int
    before_bytes: int
    after_bytes: int
    cpu_share: float
    """CPU time that the target used while all connections were idle, as a share of one core."""

    @property
    def connection_bytes(self) -> float:
        """Memory (bytes) that the target used per client connection, including the connection to the broker
        behind it.
        """
        return (self.after_bytes - self.before_bytes) / self.connections


def affordable(wanted: int) -> int:
    """Return the number of client connections, at most `wanted`, for which a proxy has enough file
    descriptors, which it inherits: each connection needs two.
    """
    return min(wanted, (raise_descriptor_limit() - SPARE_DESCRIPTORS) // 2)


def measure(target: Target, behind: Upstream, connections: int, say: Say, *, hurry: bool) -> Idle | None:
    """Start the target, measure its idle connections, and stop it. Return None for the broker itself, whose
    memory is not measured. Raises OSError, TargetError.
    """
    processes = Processes("weir-bench-")
    try:
        running = target.start(Surroundings(behind.port, processes))
        say(f"{connections:,} idle connections: {target.title}")
        return (
            None if running.pid is None else _measure(running, running.pid, behind, connections, hurry=hurry)
        )
    finally:
        processes.close()


def _measure(running: Running, pid: int, behind: Upstream, connections: int, *, hurry: bool) -> Idle:
    settle_s, watch_s = (HURRY_S, HURRY_S) if hurry else (SETTLE_S, WATCH_S)
    request = ROWS[0].request(behind.topics)
    with ExitStack() as first:
        _open(first, running.port, request, min(WARM_UP, connections))
    time.sleep(settle_s)
    before = rss_bytes(pid)
    with ExitStack() as opened:
        _open(opened, running.port, request, connections)
        time.sleep(settle_s)
        after, used_s = rss_bytes(pid), cpu_s(pid)
        time.sleep(watch_s)
        used_s = cpu_s(pid) - used_s
    return Idle(connections, before, after, used_s / watch_s)


def _open(stack: ExitStack, port: int, request: Request, count: int) -> None:
    for _ in range(count):
        connection = stack.enter_context(closing(broker.connect(port)))
        broker.exchange(connection, request)
