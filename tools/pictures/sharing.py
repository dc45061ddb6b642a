"""A chart of what clients use at several simulated Weirs beyond one Weir, beside the derived bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.quotas.sharing_world import LIMIT, SIZE, STEP_MS, WINDOW_S, Conditions, bound, first_window
from tools.pictures import svg
from tools.pictures.percents import END, LEFT, PercentAxes

WEIRS: Final = 4
DEMAND: Final = 10
DELAYS_MS: Final = (100, 500)
UNTIL_S: Final = 5
"""Time (s) of the first window that the picture shows; later, the difference falls."""
AXES: Final = PercentAxes(340, range(0, 51, 10), range(UNTIL_S + 1))


class Excess(NamedTuple):
    """Bytes beyond those at one Weir, in percent of a window's bytes."""

    delay_ms: int
    """Longest time (ms) that a report takes."""
    percents: list[float]
    """Values at each step of the first window."""
    bound: float
    """Derived maximum (percent)."""


def simulate() -> list[Excess]:
    """Return the excess at `WEIRS` Weirs for each delay, with a demand of `DEMAND` limits."""
    one = _used(1, Conditions())
    return [
        Excess(
            delay_ms,
            [
                several - single
                for several, single in zip(_used(WEIRS, Conditions(delay_ms)), one, strict=True)
            ],
            100 * bound(WEIRS, DEMAND, delay_ms),
        )
        for delay_ms in DELAYS_MS
    ]


def _used(weirs: int, conditions: Conditions) -> list[float]:
    totals = first_window(weirs, DEMAND, SIZE, conditions)[: 1000 * UNTIL_S // STEP_MS]
    return [100 * total / (LIMIT * WINDOW_S) for total in totals]


def draw(found: Sequence[Excess], footnote: str) -> str:
    """Return the SVG: a line for each delay, with a mark at its bound."""
    beyond = "percent of a window's bytes that clients use beyond those at one Weir"
    legend = f"{beyond}; they ask for {DEMAND} times the limit"
    lines = [part for excess in found for part in _excess(excess)]
    body = [svg.text(svg.MARGIN, 58, legend, "small muted"), *AXES.grid(), *lines]
    title = f"{WEIRS} Weirs in their first window, and the derived bounds"
    return svg.page(AXES.height, title, body, footnote)


def _excess(excess: Excess) -> Iterator[str]:
    yield f'<path class="line" d="M{AXES.outline(excess.percents, len(excess.percents))}"/>'
    mark, level = AXES.y(excess.bound), AXES.y(max(excess.percents))
    yield svg.line(LEFT, mark, END, mark, "mark")
    yield svg.text(
        END, mark - 6, f"bound with reports of {excess.delay_ms} ms: {excess.bound:.0f} %", "small", "end"
    )
    yield svg.text(
        END, level - 6, f"reports of {excess.delay_ms} ms: {max(excess.percents):.0f} %", "small", "end"
    )
