"""A chart of what clients use at several simulated Weirs beyond one Weir, beside the derived bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.quotas.sharing_world import LIMIT, SIZE, STEP_MS, WINDOW_S, Conditions, bound, first_window
from tools.pictures import svg

HEIGHT, LEFT, TOP, BOTTOM = 340, 60, 92, 66
"""Pixels: of the picture, and around the chart."""
WEIRS: Final = 4
DEMAND: Final = 10
DELAYS_MS: Final = (100, 500)
UNTIL_S: Final = 5
"""Time (s) of the first window that the picture shows; later, the difference falls."""
PERCENT_MAX: Final = 50


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
    floor = HEIGHT - BOTTOM
    per_percent = (floor - TOP) / PERCENT_MAX
    beyond = "percent of a window's bytes that clients use beyond those at one Weir"
    legend = f"{beyond}; they ask for {DEMAND} times the limit"
    lines = [part for excess in found for part in _excess(excess, per_percent, floor)]
    body = [svg.text(svg.MARGIN, 58, legend, "small muted"), *_grid(per_percent, floor), *lines]
    return svg.page(HEIGHT, f"{WEIRS} Weirs in their first window, and the derived bounds", body, footnote)


def _excess(excess: Excess, per_percent: float, floor: int) -> Iterator[str]:
    step = (svg.WIDTH - LEFT - svg.MARGIN) / len(excess.percents)
    points = "L".join(
        f"{LEFT + number * step:.1f} {floor - percent * per_percent:.1f}"
        for number, percent in enumerate(excess.percents)
    )
    yield f'<path class="line" d="M{points}"/>'
    mark, end = floor - excess.bound * per_percent, svg.WIDTH - svg.MARGIN
    yield svg.line(LEFT, mark, end, mark, "mark")
    yield svg.text(
        end, mark - 6, f"bound with reports of {excess.delay_ms} ms: {excess.bound:.0f} %", "small", "end"
    )
    level = floor - max(excess.percents) * per_percent
    yield svg.text(
        end, level - 6, f"reports of {excess.delay_ms} ms: {max(excess.percents):.0f} %", "small", "end"
    )


def _grid(per_percent: float, floor: int) -> Iterator[str]:
    for percent in range(0, PERCENT_MAX + 1, 10):
        y = floor - percent * per_percent
        yield svg.line(LEFT, y, svg.WIDTH - svg.MARGIN, y, "grid")
        yield svg.text(LEFT - 8, y + 4, f"{percent}", "small muted", "end")
    for second in range(UNTIL_S + 1):
        x = LEFT + second * (svg.WIDTH - LEFT - svg.MARGIN) / UNTIL_S
        yield svg.text(x, floor + 18, f"{second} s", "small muted", "middle" if second < UNTIL_S else "end")
