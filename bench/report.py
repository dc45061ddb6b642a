"""Results as markdown tables, and as JSON for whoever compares runs."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from bench.generator import Measured
from bench.measure import Results
from bench.rows import Row
from bench.stats import Spread, ratios
from bench.targets import Target

BUSY: Final = 0.9
"""From this share of a core on, the load generator may have been the bottleneck."""
REFERENCE: Final = "haproxy"
NOTHING: Final = "—"


def markdown(results: Results) -> str:
    """The tables, as in docs/performance.md."""
    parts = [
        "CPU µs per request of the proxy process, median (least to most) over rounds:",
        _cpu_table(results),
        "Requests per second, and latency p50 / p99 in ms; medians over rounds:",
        _rate_table(results),
        *_notes(results),
    ]
    return "\n\n".join(parts) + "\n"


def _cpu_table(results: Results) -> str:
    proxies = [target for target in results.targets if _has_cpu(results, target)]
    rated = [t for t in proxies if t.name != REFERENCE] if _reference(results) else []
    head = ["load", *(t.title for t in proxies), *(f"{t.title} ÷ HAProxy" for t in rated)]
    lines = [
        [row.title, *(_cpu(results, row, t) for t in proxies), *(_ratio(results, row, t) for t in rated)]
        for row in results.rows
    ]
    return table(head, lines)


def _rate_table(results: Results) -> str:
    head = ["load", *(target.title for target in results.targets)]
    lines = [[row.title, *(_rate(results, row, t) for t in results.targets)] for row in results.rows]
    return table(head, lines)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A markdown table; all columns but the first are aligned right."""
    rules = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rules, *lines])


def _has_cpu(results: Results, target: Target) -> bool:
    """Whether a column of CPU time makes sense: not for the broker itself."""
    if target.name in results.missing:
        return True
    return any(cell.cpu_s is not None for row in results.rows for cell in results.of(row, target))


def _reference(results: Results) -> Target | None:
    found = [t for t in results.targets if t.name == REFERENCE and t.name not in results.missing]
    return found[0] if found else None


def _cpu(results: Results, row: Row, target: Target) -> str:
    values = _values(results.of(row, target), lambda cell: cell.cpu_us)
    if not values:
        return NOTHING
    least, middle, most = Spread.of(values)
    return f"{middle:.1f} ({least:.1f} to {most:.1f})"


def _ratio(results: Results, row: Row, target: Target) -> str:
    reference = _reference(results)
    ours = _values(results.of(row, target), lambda cell: cell.cpu_us)
    theirs = _values(results.of(row, reference), lambda cell: cell.cpu_us) if reference else []
    rounds = min(len(ours), len(theirs))
    return f"{ratios(ours[:rounds], theirs[:rounds]).median:.2f}" if rounds else NOTHING


def _rate(results: Results, row: Row, target: Target) -> str:
    cells = results.of(row, target)
    if not cells:
        return NOTHING
    per_s, p50_us, p99_us = (
        Spread.of(values).median
        for values in (
            [cell.requests_per_s for cell in cells],
            [cell.p50_us for cell in cells],
            [cell.p99_us for cell in cells],
        )
    )
    return f"{per_s:,.0f}/s, {p50_us / 1000:.2f} / {p99_us / 1000:.2f}"


def _values(cells: Iterable[Measured], value: Callable[[Measured], float | None]) -> list[float]:
    return [found for cell in cells if (found := value(cell)) is not None]


def _notes(results: Results) -> list[str]:
    titles = {target.name: target.title for target in results.targets}
    notes = [f"- {titles[name]} was not measured: {reason}" for name, reason in results.missing.items()]
    for row in results.rows:
        busy = [
            f"{target.title} {most:.0%}"
            for target in results.targets
            if (most := max((cell.generator_busy for cell in results.of(row, target)), default=0)) > BUSY
        ]
        if busy:
            notes.append(f"- {row.title}: the load generator was busy ({', '.join(busy)} of a core)")
    return ["\n".join(notes)] if notes else []


def as_json(results: Results, options: dict[str, object]) -> dict[str, object]:
    """Everything measured, with the kind of machine (nothing that names it)."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "options": options,
        "missing": results.missing,
        "cells": [
            {"row": row, "target": target, "rounds": [_figures(cell) for cell in cells]}
            for (row, target), cells in results.cells.items()
        ],
    }


def _figures(cell: Measured) -> dict[str, float | None]:
    derived = {"requests_per_s": cell.requests_per_s, "cpu_us": cell.cpu_us}
    return {**asdict(cell), **derived}


def machine() -> dict[str, object]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
