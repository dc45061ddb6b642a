"""`--measure`: a broker's table of costs, from microworkloads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from bench.request_time import micro
from bench.request_time.book import Book
from bench.request_time.fit import fit_cold, fit_table
from bench.request_time.runner import Case, Observation, observe
from bench.request_time.stand import Stand
from quotas.request_costs import ColdCost, CostTable

SHAPE: Final = ColdCost(us=55.0, from_us=300.0, full_us=1500.0)
"""From when on idleness shows, and when it no longer grows; how much it is, is measured."""
WARM_UP_S: Final = 12.0
_BUSY: Final = ("metadata-1", "produce-small-1")

Say = Callable[[str], None]


def measure(stand: Stand, seconds: float, say: Say) -> tuple[CostTable, list[Observation]]:
    """Run every microworkload for so long. Raises LoopError, TruthError, OSError."""
    book = Book(stand.dialect)
    warm_up(stand, book, say)
    seen: list[Observation] = []
    cases = list(micro.cases(book, stand.data))
    for index, case in enumerate(cases, 1):
        say(f"{stand.version}: {index} of {len(cases)}, {case.name}")
        seen += run(stand, case, seconds, say)
    when = datetime.now(UTC).date()
    source = f"python -m bench.request_time --measure, {when}: one node, loopback, JMX request-time"
    return table_of(seen, stand.version, source), seen


def table_of(seen: list[Observation], broker: str, source: str) -> CostTable:
    """The table that fits what was seen."""
    idle = [found for found in seen if found.case.startswith(micro.COLD_PREFIX)]
    cold = fit_cold(idle, [found for found in seen if found.case in _BUSY], SHAPE)
    warm = [
        found
        for found in seen
        if not found.case.startswith((micro.COLD_PREFIX, micro.SESSION_PREFIX))
        and not found.client.endswith(micro.SETUP)
    ]
    return fit_table(warm, cold, broker, source)


def warm_up(stand: Stand, book: Book, say: Say) -> None:
    """Let Java compile what is frequent. Raises as `observe`."""
    say(f"{stand.version}: warming up")
    observe(
        micro.warm_up(book, stand.data), stand.address, stand.truth, SHAPE, warm_up_s=WARM_UP_S, seconds=0.1
    )


def run(stand: Stand, case: Case, seconds: float, say: Say) -> list[Observation]:
    """Run a case straight at the broker. Raises as `observe`."""
    seen = observe(case, stand.address, stand.truth, SHAPE, warm_up_s=seconds / 2, seconds=seconds)
    for found in seen:
        if found.errors:
            say(f"{stand.version}: {found.case}, {found.api}: answered {', '.join(found.errors)}")
    return seen
