"""Run the parts of the benchmark one after another, in front of one broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from bench import idle
from bench.measure import Results, Say, Upstream, canned_upstream, measure, upstream
from bench.report import Outcome

PARTS: Final = ("rows", "tls", "sasl", "entities", "idle")
UPSTREAMS: Final[Mapping[str, Callable[[], AbstractContextManager[Upstream]]]] = {
    "kafka": upstream,
    "canned": canned_upstream,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts to measure, and the duration and number of measurements."""

    parts: Sequence[str]
    upstream: str
    """Name of the broker behind the targets, a key of UPSTREAMS."""
    seconds: float
    rounds: int
    idle_connections: int
    hurry: bool = False
    """True to skip the warm-up of JVMs; the figures are worthless then."""


def run(plan: Plan, outcome: Outcome, say: Say) -> None:
    """Measure the parts of the plan, and add the results to `outcome`. Raises BrokerError, ClientError,
    TargetError, LoadError, OSError, and ClusterError, JarError or JavaMissingError if the broker cannot run.
    """
    connections = idle.affordable(plan.idle_connections) if "idle" in plan.parts else 0
    with UPSTREAMS[plan.upstream]() as behind:
        if "idle" in plan.parts:
            _measure_idle(plan, outcome, behind, connections, say)
        for part, results in measured(outcome).items():
            if part in plan.parts and results.rows and results.targets:
                measure(results, behind, seconds=plan.seconds, rounds=plan.rounds, hurry=plan.hurry, say=say)


def measured(outcome: Outcome) -> dict[str, Results]:
    """Return the results of the parts that consist of rows at targets, by name of the part: all parts but
    `idle`.
    """
    return {
        "rows": outcome.load,
        "tls": outcome.tls,
        "sasl": outcome.sasl,
        "entities": outcome.entities,
    }


def _measure_idle(plan: Plan, outcome: Outcome, behind: Upstream, connections: int, say: Say) -> None:
    for target in outcome.load.targets:
        if target.missing() is None:
            found = idle.measure(target, behind, connections, say, hurry=plan.hurry)
            if found is not None:
                outcome.idle[target.name] = found
