"""Load both brokers through one worker and through two, in turn.

Generator and brokers need cores too, so two workers cannot have two cores for themselves here. The rate that
workers would reach with a core each is computed: the busiest process is at its limit first.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from bench import canned
from bench.load import Load, Measured, generate
from bench.measure import HURRY_S, WARM_UP_S
from bench.rows import ROWS, Row
from bench.workers.stand import Stand, stand
from tests.kafka.settings import HOST

LOADS: Final = tuple(
    row
    for row in ROWS
    if row.name in {"metadata-16", "metadata-8x16", "produce-100b", "produce-500kb", "fetch-100b"}
)
"""Rows whose connections are an even number; each broker gets half of them."""
WORKERS: Final = (1, 2)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Shared:
    """Rate and CPU of one load at both brokers."""

    requests_per_s: float
    cpu_us: float
    """CPU time (µs) of all processes per request."""
    busiest: float
    """Share of that time which the busiest worker used: 1 with one worker, 0.5 with two equal workers."""
    generator_busy: float
    """Share of a core that the busier of the two load generator processes used."""

    @property
    def core_rate(self) -> float:
        """Requests per second once the busiest process uses a whole core, if nothing else limits."""
        return 1e6 / (self.cpu_us * self.busiest)


def measure(rounds: int, seconds: float, say: Say, *, hurry: bool) -> dict[tuple[str, int], list[Shared]]:
    """Return the measurements of each round by row and number of workers. Raises LoadError,
    TargetError, OSError.
    """
    found: dict[tuple[str, int], list[Shared]] = {}
    with ExitStack() as opened:
        stands = {workers: opened.enter_context(stand(workers)) for workers in WORKERS}
        for turn in range(rounds):
            for row in LOADS:
                for workers in WORKERS[:: -1 if turn % 2 else 1]:
                    say(f"round {turn + 1} of {rounds}: {row.title}: {workers} worker(s)")
                    once = _once(row, stands[workers], seconds, HURRY_S if hurry else WARM_UP_S)
                    found.setdefault((row.name, workers), []).append(once)
    return found


def _once(row: Row, behind: Stand, seconds: float, warm_up_s: float) -> Shared:
    frames = row.frames(canned.TOPICS)
    load = Load(
        HOST, behind.ports[0], row.connections // len(behind.ports), row.depth, warm_up_s, seconds, behind.pid
    )
    loads = [load, *(replace(load, port=port, pid=None) for port in behind.ports[1:])]
    with ThreadPoolExecutor(len(loads)) as threads:
        before = behind.cpu_s()
        measured = list(threads.map(lambda each: generate(each, frames), loads))
        used = [after - then for after, then in zip(behind.cpu_s(), before, strict=True)]
    return _shared(measured, max(used) / sum(used))


def _shared(measured: list[Measured], busiest: float) -> Shared:
    """Add up the measurements at all brokers; the first has the CPU time of all processes."""
    first = measured[0]
    assert first.cpu_s is not None
    requests = sum(each.requests for each in measured)
    return Shared(
        requests / first.seconds,
        first.cpu_s / requests * 1e6,
        busiest,
        max(each.generator_busy for each in measured),
    )
