"""Two stub brokers, and a Weir in front of them with any number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench import canned
from bench.cpu import cpu_s_by_process
from bench.targets.target import Surroundings, start_process
from bench.targets.weir import THIS_TREE, quota_file, start
from tests.kafka.ports import free_range
from tests.kafka.processes import Processes

BROKERS: Final = 2


@dataclass(frozen=True, slots=True)
class Stand:
    """A running Weir. The broker with the node id N is reached through `ports[N]`."""

    ports: tuple[int, ...]
    pid: int

    def cpu_s(self) -> list[float]:
        """Return the CPU time (s) of each process so far: the supervisor's first."""
        return list(cpu_s_by_process(self.pid).values())


@contextmanager
def stand(workers: int, *options: str) -> Iterator[Stand]:
    """Run a Weir with quotas under all keys, too high to throttle, and the brokers behind it, until the block
    ends. `options` are further ones of `weir run`. Raises TargetError, OSError.
    """
    processes = Processes("weir-bench-")
    try:
        first = free_range(BROKERS)
        brokers = range(first, first + BROKERS)
        surroundings = Surroundings(first, processes)
        for port in brokers:
            start_process(surroundings, f"broker-{port}", canned.command(port, *brokers), port)
        running = start(
            surroundings, "weir", THIS_TREE, quota_file(), "--set", f"workers={workers}", *options
        )
        assert running.pid is not None
        yield Stand(tuple(running.port + 1 + node_id for node_id in range(BROKERS)), running.pid)
    finally:
        processes.close()
