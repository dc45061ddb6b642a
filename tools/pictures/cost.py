"""A bar chart of the CPU time per request, from the table in docs/background/performance.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tools.pictures import PictureError, svg

SERIES: Final = {
    "HAProxy (TCP)": "HAProxy (TCP, looks at no byte)",
    "Kroxylicious (JVM)": "Kroxylicious (JVM)",
    "Weir, quotas on": "Weir, quotas on",
    "Weir, compiled, quotas on": "Weir compiled, quotas on",
}
"""Column of the table → label in the picture."""
TABLE: Final = (
    "CPU time of the proxy process per request, in µs: the median over all rounds (minimum to maximum):"
)
SMALL_US: Final = 100.0
"""CPU time (µs): loads above it have a scale of their own, so that the others' bars can be told apart."""

_RUN: Final = re.compile(
    r"^- (?P<day>\d{4}-\d\d-\d\d), (?P<machine>[^)]*\)).*, (?P<rounds>\d+) rounds "
    r"[^,]*\bWeir\s+(?P<commit>\w+)",
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


def parse(page: str) -> Costs:
    """Return the figures of a page. Raises PictureError if the table or the description of the run is missing
    or has another form.
    """
    figures = page.partition(f"{TABLE}\n\n")[2]
    head, *rows = [_cells(row) for row in figures.partition("\n\n")[0].splitlines()] or [[]]
    run = _RUN.search(figures)
    try:
        columns = [head.index(name) for name in SERIES]
        us = {row[0]: [_us(row[column]) for column in columns] for row in rows[1:]}
    except (IndexError, ValueError) as error:
        raise PictureError(f"the table {TABLE!r} is missing, or has another form: {error}") from error
    if run is None:
        raise PictureError("no line with date, machine, rounds and Weir's commit below the tables")
    day, machine, rounds, commit = run.groups()
    return Costs(us, f"Measured {day}, {machine}, median of {rounds} rounds, Weir {commit[:7]}.")


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _us(cell: str) -> float:
    """Return the median of a cell: median (minimum to maximum)."""
    return float(cell.partition(" (")[0].replace(",", ""))


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
    title = "CPU time of the proxy process per request, in µs (shorter is better)"
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
