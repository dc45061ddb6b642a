"""A bar chart of the CPU time per request, from the table in docs/background/performance.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bench.document import FIGURES, markers
from tools.pictures import PictureError, svg

SERIES: Final = {
    "HAProxy (TCP)": "HAProxy (TCP, looks at no byte)",
    "Kroxylicious (JVM)": "Kroxylicious (JVM)",
    "Weir, quotas on": "Weir, quotas on",
    "Weir, compiled, quotas on": "Weir compiled, quotas on",
}
"""Column of the table → label in the picture."""
TABLE: Final = "CPU µs per request of the proxy process, median (least to most) over rounds:"
SMALL_US: Final = 100.0
"""CPU time (µs): loads above it have a scale of their own, so that the others' bars can be told apart."""

_CELL: Final = re.compile(r"([\d,]+\.\d) \(")
_RUN: Final = re.compile(
    r"^- (?P<day>\d{4}-\d\d-\d\d), (?P<machine>[^)]*\)).*, (?P<rounds>\d+) rounds "
    r"[^;]*\bweir\s+(?P<commit>\w+);",
    re.MULTILINE,
)

BAR, GAP, TOP, LABELS, VALUES = 13, 15, 80, 290, 50
"""Pixels: a bar's height, the gap between two loads, the first bar's top, the widths beside the bars."""
LEGEND: Final = (0, 235, 390, 520)
"""Pixels: distance of each series' label from the margin."""


class Costs(NamedTuple):
    """The published figures."""

    us: dict[str, list[float]]
    """Load → CPU time (µs) per request, in the order of `SERIES`."""
    measured: str
    """Date, machine, commit and number of rounds."""


def parse(document: str) -> Costs:
    """Return the figures between a page's markers. Raises PictureError if the table or the description of
    the run is missing or has another form.
    """
    opening, closing = markers(FIGURES)
    _before, begin, rest = document.partition(opening)
    figures, end, _after = rest.partition(closing)
    if not begin or not end:
        raise PictureError(f"no figures between {opening} and {closing}")
    run = _RUN.search(figures)
    if run is None:
        raise PictureError("no line with date, machine, rounds and Weir's commit below the tables")
    day, machine, rounds, commit = run.groups()
    measured = f"Measured {day}, {machine}, median of {rounds} rounds, Weir {commit[:7]}."
    return Costs(_table(figures), measured)


def _table(figures: str) -> dict[str, list[float]]:
    _before, found, rest = figures.partition(f"{TABLE}\n\n")
    if not found:
        raise PictureError(f"no table {TABLE!r}")
    head, _rule, *rows = [_cells(row) for row in rest.partition("\n\n")[0].splitlines()]
    missing = [name for name in SERIES if name not in head]
    if missing or not rows:
        raise PictureError(f"the table has no {missing[0] if missing else 'rows'}: its head is {head}")
    columns = [head.index(name) for name in SERIES]
    return {row[0]: [_us(row, column) for column in columns] for row in rows}


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _us(row: Sequence[str], column: int) -> float:
    found = _CELL.match(row[column]) if column < len(row) else None
    if found is None:
        raise PictureError(f"row {row[0]!r} has no median (least to most) in column {column}: {list(row)}")
    return float(found[1].replace(",", ""))


def draw(costs: Costs) -> str:
    """Return the SVG: for each load a bar per series, with its value."""
    panels = [
        {load: us for load, us in costs.us.items() if (max(us) > SMALL_US) is is_large}
        for is_large in (False, True)
    ]
    body, top = list(_legend()), TOP
    for panel in filter(None, panels):
        if top > TOP:
            body.append(svg.line(svg.MARGIN, top, svg.WIDTH - svg.MARGIN, top, "grid"))
            body.append(svg.text(svg.WIDTH - svg.MARGIN, top + 16, "another scale", "small muted", "end"))
            top += 24
        body += _bars(panel, top)
        top += len(panel) * _height()
    title = "CPU µs per request of the proxy process (shorter is better)"
    return svg.page(top + 36, title, body, costs.measured)


def _height() -> int:
    return len(SERIES) * BAR + GAP


def _legend() -> Iterator[str]:
    for number, label in enumerate(SERIES.values()):
        x = svg.MARGIN + LEGEND[number]
        yield svg.bar(x, 50, 12, 12, f"c{number}")
        yield svg.text(x + 18, 60.5, label, "small")


def _bars(panel: dict[str, list[float]], top: int) -> Iterator[str]:
    scale = (svg.WIDTH - 2 * svg.MARGIN - LABELS - VALUES) / max(map(max, panel.values()))
    left = svg.MARGIN + LABELS
    for row, (load, values) in enumerate(panel.items()):
        y = top + row * _height()
        yield svg.text(left - 10, y + len(SERIES) * BAR / 2 + 4.5, load, anchor="end")
        for number, us in enumerate(values):
            yield svg.bar(left, y + number * BAR, us * scale, BAR - 2, f"c{number}")
            yield svg.text(left + us * scale + 6, y + number * BAR + 9.5, f"{us:.1f}", "small")
