"""Open many connections over two workers, keep them, and then ask on each of them once."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final

from bench import broker, canned
from bench.cpu import rss_bytes
from bench.idle import affordable
from bench.rows import ROWS
from bench.workers.stand import Stand, stand

WATCH_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """Time, memory and CPU of many connections."""

    connections: int
    opened_s: float
    """Time (s) to open all of them, one after another, with one request on each."""
    idle_share: float
    """Share of a core that all processes use while nobody asks."""
    connection_bytes: float
    asked_s: float
    """Time (s) until all had an answer to a second request, asked one after another."""


def measure(connections: int, watch_s: float, say: Callable[[str], None]) -> Crowd:
    """Open the connections, half of them at each broker. Raises OSError, if one fails; TargetError."""
    count = affordable(connections, each=1)  # each of two workers has half of the connections
    with stand(2) as behind, ExitStack() as stack:
        say(f"{count:,} connections over two workers")
        first = rss_bytes(behind.pid)
        began_s = time.monotonic()
        opened = [_open(stack, behind, index) for index in range(count)]
        opened_s = time.monotonic() - began_s
        idle_share = _idle_share(behind, watch_s)
        memory = rss_bytes(behind.pid) - first
        began_s = time.monotonic()
        for connection in opened:
            broker.exchange(connection, ROWS[0].request(canned.TOPICS))
        return Crowd(count, opened_s, idle_share, memory / count, time.monotonic() - began_s)


def _open(stack: ExitStack, behind: Stand, index: int) -> socket.socket:
    connection = stack.enter_context(closing(broker.connect(behind.ports[index % len(behind.ports)])))
    broker.exchange(connection, ROWS[0].request(canned.TOPICS))
    return connection


def _idle_share(behind: Stand, watch_s: float) -> float:
    before = sum(behind.cpu_s())
    time.sleep(watch_s)
    return (sum(behind.cpu_s()) - before) / watch_s
