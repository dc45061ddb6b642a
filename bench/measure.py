"""Rounds: every row at every target, in turns, so that a disturbance meets them all."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from bench import broker, canned
from bench.load import Load, Measured, generate
from bench.rows import Row, Topics
from bench.targets import Running, Surroundings, Target
from bench.targets.target import start_process
from tests.kafka.ports import free_range
from tests.kafka.processes import Processes
from tests.kafka.settings import HOST

WARM_UP_S: Final = 0.5
"""Before each measurement, once everything is warm."""
HURRY_S: Final = 0.1
BUSY: Final = 0.8
"""From this share of a core on, one more process generates load."""
CORES_TO_SPARE: Final = 2
"""For the broker and the proxy: a second generator on their cores would make things worse."""

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that was measured: a list over rounds for each (row, target)."""

    rows: Sequence[Row]
    targets: Sequence[Target]
    cells: dict[tuple[str, str], list[Measured]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Why a target has no figures, by its name."""

    def of(self, row: Row, target: Target) -> list[Measured]:
        """One entry per round; none if the target is missing."""
        return self.cells.get((row.name, target.name), [])

    @property
    def present(self) -> list[Target]:
        """Targets that have figures."""
        return [target for target in self.targets if target.name not in self.missing]


@dataclass(frozen=True, slots=True)
class Upstream:
    """What stands behind all targets."""

    port: int
    topics: Topics
    check: Callable[[], None]
    """Raises ClusterError if it has failed."""
    sasl_port: int
    """Where clients authenticate."""


@contextmanager
def upstream() -> Iterator[Upstream]:
    """A broker with its topics, gone at the end. Raises BrokerError and what `tests.kafka` raises."""
    with broker.cluster() as cluster:
        ((port,), (sasl_port,)) = cluster.ports.values(), cluster.sasl_ports.values()
        yield Upstream(port, broker.prepare(port), cluster.check, sasl_port)


def measure(
    results: Results, behind: Upstream, *, seconds: float, rounds: int, say: Say, hurry: bool = False
) -> None:
    """Start the targets, measure into `results`, end them. `say` is told each step.

    Raises BrokerError, TargetError, LoadError, ClusterError.
    """
    with _all_running(results, behind) as running:
        warmest_s = HURRY_S if hurry else math.inf
        processes = {
            row.name: _warm_up(row, results, behind, running, warmest_s, say) for row in results.rows
        }
        for number in range(rounds):
            for row, target in turns(results.rows, results.present, number):
                say(f"round {number + 1} of {rounds}: {row.title}: {target.title}")
                load = _load(row, running[target.name], WARM_UP_S, seconds)
                measured = generate(load, row.frames(behind.topics), processes[row.name])
                results.cells.setdefault((row.name, target.name), []).append(measured)
                behind.check()


def steps(rows: int, targets: int, rounds: int) -> int:
    """How often `measure` calls `say`, if no target is missing."""
    return rows * targets * (1 + rounds)


@contextmanager
def canned_upstream() -> Iterator[Upstream]:
    """The same with a broker that does nothing (`bench.canned`). Raises TargetError."""
    processes = Processes("weir-bench-")
    try:
        port = free_range(1)
        start_process(Surroundings(port, processes), "canned", canned.command(port), port)
        yield Upstream(port, canned.TOPICS, lambda: None, port)
    finally:
        processes.close()


@contextmanager
def _all_running(results: Results, behind: Upstream) -> Iterator[Mapping[str, Running]]:
    processes = Processes("weir-bench-")
    try:
        results.missing.update(
            {target.name: reason for target in results.targets if (reason := target.missing()) is not None}
        )
        surroundings = Surroundings(behind.port, processes, behind.sasl_port)
        yield {target.name: target.start(surroundings) for target in results.present}
    finally:
        processes.close()


def _warm_up(
    row: Row,
    results: Results,
    behind: Upstream,
    running: Mapping[str, Running],
    at_most_s: float,
    say: Say,
) -> int:
    """Have the JVMs compile what the row needs, and make sure that every target answers it without error.

    Returns how many processes are to generate this load.
    """
    busiest = 0.0
    for target in results.present:
        say(f"warming up: {row.title}: {target.title}")
        through = running[target.name]
        broker.ask(through.port, row.request(behind.topics), through.entry)
        load = _load(row, through, 0.0, min(target.warm_up_s, at_most_s))
        measured = generate(load, row.frames(behind.topics))
        if measured.cpu_s is not None:
            busiest = max(busiest, measured.generator_busy)
    return generators(busiest, row.connections, os.cpu_count() or 1)


def generators(busiest: float, connections: int, cores: int) -> int:
    """How many processes are to generate a load in which one process used that share of a core."""
    return min(int(busiest / BUSY) + 1, connections, max(cores - CORES_TO_SPARE, 1))


def turns(rows: Sequence[Row], targets: Sequence[Target], number: int) -> Iterator[tuple[Row, Target]]:
    """The order of a round: in each, another target begins."""
    for row in rows:
        for index in range(len(targets)):
            yield row, targets[(index + number) % len(targets)]


def _load(row: Row, target: Running, warm_up_s: float, seconds: float) -> Load:
    return Load(HOST, target.port, row.connections, row.depth, warm_up_s, seconds, target.pid, target.entry)
