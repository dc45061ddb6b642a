"""Measure a broker's table of request costs with small workloads of one API each (`--measure`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from bench.request_time import micro
from bench.request_time.book import Book
from bench.request_time.fit import fit_cold, fit_table
from bench.request_time.runner import Case, Observation, observe
from bench.request_time.stand import Stand
from weir.quotas.costs.request_costs import ColdCost, CostTable

SHAPE: Final = ColdCost(us=120.0, from_us=300.0, full_us=4000.0)
"""Gaps between requests from which, and up to which, an idle broker's surcharge grows. The surcharge itself
is measured; its 120 µs here are used only if no case could be measured.
"""
WARM_UP_S: Final = 12.0
ROUNDS: Final = 3
_BUSY: Final = ("metadata-1", "produce-small-1")

Say = Callable[[str], None]


def measure(stand: Stand, seconds: float, say: Say) -> tuple[CostTable, list[Observation]]:
    """Run every case of `micro` for `seconds` in total, over several rounds, and fit a table of costs. Of
    each case, the round with the least cost counts, because disturbances only increase costs. Raises
    LoopError, TruthError, OSError.
    """
    book, when, load = Book(stand.broker_versions), datetime.now(UTC).date(), os.getloadavg()[0]
    warm_up(stand, book, say)
    rounds = list[list[Observation]]()
    for number in range(1, ROUNDS + 1):
        seen = list[Observation]()
        cases = list(micro.cases(book, stand.data))
        for index, case in enumerate(cases, 1):
            say(f"{stand.version}: round {number} of {ROUNDS}, {index} of {len(cases)}, {case.name}")
            seen += run(stand, case, seconds / ROUNDS, say)
        rounds.append(seen)
    seen = cheapest(rounds)
    source = (
        f"python -m bench.request_time --measure, {when}: "
        f"one node, loopback, JMX request-time; load average {load:.1f} before"
    )
    return table_of(seen, stand.version, source), seen


def cheapest(rounds: Iterable[Iterable[Observation]]) -> list[Observation]:
    """Return, for each API of each client, the observation with the least time per request."""
    found: dict[tuple[str, str], Observation] = {}
    for seen in rounds:
        for new in seen:
            key = new.client, new.api
            old = found.get(key)
            if new.requests and (old is None or _us(new) < _us(old)):
                found[key] = new
    return list(found.values())


def _us(seen: Observation) -> float:
    return seen.truth_us / seen.requests


def table_of(seen: list[Observation], broker: str, source: str) -> CostTable:
    """Fit a table of costs to the observations, without those whose requests were answered with an error."""
    idle = [found for found in seen if found.case.startswith(micro.COLD_PREFIX)]
    cold = fit_cold(idle, [found for found in seen if found.case in _BUSY], SHAPE)
    warm = [
        found
        for found in seen
        if not found.errors
        and not found.case.startswith(micro.COLD_PREFIX)
        and not found.client.endswith(micro.SETUP)
    ]
    return fit_table(warm, cold, broker, source)


def warm_up(stand: Stand, book: Book, say: Say) -> None:
    """Send all frequent requests for some seconds, so that Java compiles their code. Raises LoopError,
    TruthError, OSError.
    """
    say(f"{stand.version}: warming up")
    observe(
        micro.warm_up(book, stand.data), stand.address, stand.truth, SHAPE, warm_up_s=WARM_UP_S, seconds=0.1
    )


def run(stand: Stand, case: Case, seconds: float, say: Say) -> list[Observation]:
    """Run a case directly at the broker, and report error codes to `say`. Raises LoopError, TruthError,
    OSError.
    """
    seen = observe(case, stand.address, stand.truth, SHAPE, warm_up_s=seconds / 2, seconds=seconds)
    for found in seen:
        if found.errors:
            say(f"{stand.version}: {found.case}, {found.api}: answered {', '.join(found.errors)}")
    return seen
