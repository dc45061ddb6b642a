"""Rounds: every row at every target, in turns, so that a disturbance meets them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from bench import broker
from bench.generator import Load, Measured, generate
from bench.rows import Row, Topics
from bench.targets import Running, Surroundings, Target
from tests.kafka.processes import Processes
from tests.kafka.settings import HOST

WARM_UP_S: Final = 0.5
JVM_WARM_UP_S: Final = 2.0

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


def measure(
    rows: Sequence[Row], targets: Sequence[Target], *, seconds: float, rounds: int, results: Results, say: Say
) -> None:
    """Start everything, measure into `results`, end everything. `say` is told each step.

    Raises BrokerError, TargetError, LoadError, ClusterError and what else `tests.kafka` raises.
    """
    with broker.cluster() as cluster:
        port = next(iter(cluster.ports.values()))
        topics = broker.prepare(port)
        with _all_running(targets, port, results) as running:
            for row in rows:
                _warm_up(row, topics, port, running, say)
            for number in range(rounds):
                for row, target in _turns(rows, [t for t in targets if t.name in running], number):
                    say(f"round {number + 1} of {rounds}: {row.title}: {target.title}")
                    measured = _run(row, topics, running[target.name], WARM_UP_S, seconds)
                    results.cells.setdefault((row.name, target.name), []).append(measured)
                    cluster.check()


def steps(rows: Sequence[Row], targets: Sequence[Target], rounds: int) -> int:
    """How often `measure` calls `say`, if no target is missing."""
    return len(rows) * (1 + rounds * len(targets))


@contextmanager
def _all_running(
    targets: Sequence[Target], broker_port: int, results: Results
) -> Iterator[Mapping[str, Running]]:
    processes = Processes("weir-bench-")
    try:
        running: dict[str, Running] = {}
        for target in targets:
            reason = target.missing()
            if reason is None:
                running[target.name] = target.start(Surroundings(broker_port, processes))
            else:
                results.missing[target.name] = reason
        yield running
    finally:
        processes.close()


def _warm_up(row: Row, topics: Topics, broker_port: int, running: Mapping[str, Running], say: Say) -> None:
    """Have the JVM compile what the row needs, and make sure that every target answers it without error."""
    say(f"warming up: {row.title}")
    for target in running.values():
        broker.ask(target.port, row.request(topics))
    _run(row, topics, Running(broker_port, None), 0.0, JVM_WARM_UP_S)


def _turns(rows: Sequence[Row], targets: Sequence[Target], number: int) -> Iterator[tuple[Row, Target]]:
    """The order of a round: in each, another target begins."""
    for row in rows:
        for index in range(len(targets)):
            yield row, targets[(index + number) % len(targets)]


def _run(row: Row, topics: Topics, target: Running, warm_up_s: float, seconds: float) -> Measured:
    load = Load(HOST, target.port, row.connections, row.depth, warm_up_s, seconds, target.pid)
    return generate(load, row.request(topics).frame)
