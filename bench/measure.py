"""Measure in rounds: each round measures every row (load) at every target once, so that other work of the
machine disturbs all targets alike.
"""

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
"""Warm-up (s) before each measurement. `_warm_up` has warmed up the target longer, before the first round."""
HURRY_S: Final = 0.1
BUSY: Final = 0.8
"""Share of a core that one load generator process may use; a load that needs more gets more processes."""
CORES_TO_SPARE: Final = 2
"""Number of cores kept free for broker and proxy; further load generator processes would compete with them.
"""

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Results:
    """All measurements, with one entry per round for each pair of row and target."""

    rows: Sequence[Row]
    targets: Sequence[Target]
    cells: dict[tuple[str, str], list[Measured]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Reasons why targets were not measured, by the target's name."""

    def of(self, row: Row, target: Target) -> list[Measured]:
        """Return the measurements of a row at a target, one per round; an empty list if the target was not
        measured.
        """
        return self.cells.get((row.name, target.name), [])

    @property
    def present(self) -> list[Target]:
        """The targets that are not in `missing`."""
        return [target for target in self.targets if target.name not in self.missing]


@dataclass(frozen=True, slots=True)
class Upstream:
    """The running broker behind all targets, with its topics."""

    port: int
    topics: Topics
    check: Callable[[], None]
    """Function to call after each measurement; raises ClusterError if the broker has failed."""
    sasl_port: int
    """Port of the broker's listener for clients that authenticate with SASL."""


@contextmanager
def upstream() -> Iterator[Upstream]:
    """Run a Kafka broker with the topics of the loads until the block ends, then delete its files. Raises
    BrokerError, and ClusterError, JarError or JavaMissingError if the broker cannot run.
    """
    with broker.cluster() as cluster:
        ((port,), (sasl_port,)) = cluster.ports.values(), cluster.sasl_ports.values()
        yield Upstream(port, broker.prepare(port), cluster.check, sasl_port)


def measure(
    results: Results, behind: Upstream, *, seconds: float, rounds: int, say: Say, hurry: bool = False
) -> None:
    """Start the targets, add their measurements to `results`, and stop the targets. Call `say` with a
    description of each step.

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


@contextmanager
def canned_upstream() -> Iterator[Upstream]:
    """Run the stub broker (`bench.canned`) until the block ends. Raises TargetError."""
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
    """Check that every target answers the row's request without an error, and send the row's load to it, so
    that JVMs compile the code that the row needs. Return the number of load generator processes for this row.
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
    """Return the number of load generator processes for a load. `busiest` is the share of a core that a
    single process used for it.
    """
    return min(int(busiest / BUSY) + 1, connections, max(cores - CORES_TO_SPARE, 1))


def turns(rows: Sequence[Row], targets: Sequence[Target], number: int) -> Iterator[tuple[Row, Target]]:
    """Yield the pairs of row and target in the order of a round; each round begins with another target."""
    for row in rows:
        for index in range(len(targets)):
            yield row, targets[(index + number) % len(targets)]


def _load(row: Row, target: Running, warm_up_s: float, seconds: float) -> Load:
    return Load(
        HOST,
        target.port,
        row.connections,
        row.depth,
        warm_up_s,
        seconds,
        target.pid,
        target.entry,
        row.reconnects,
    )
