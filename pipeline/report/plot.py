"""Plots by time as SVG: each period is a step, so a plot of one period shows it, too.

A plot is a box of one unit per column by `HEIGHT` units, which the page stretches to its room. Labels lie on
it at shares of its size, so they keep their form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, log10
from typing import Final

from weir.pipeline.report.model import DAY_MS, HOUR_MS, Columns
from weir.pipeline.report.units import moment, unit_of

HEIGHT: Final = 400
POINTS: Final = 180
"""Maximum number of steps of a plot; a longer series shows the highest value of several columns."""
_TIMES: Final = 5
_STEPS_H: Final = (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672, 1344, 2688)


@dataclass(frozen=True, slots=True)
class Plot:
    """Areas and lines over time, in one quantity."""

    title: str
    unit: str
    """Base unit of the values."""
    count: int
    """Number of steps."""
    from_ms: int
    step_ms: float
    top: float
    """Value at the upper edge."""
    areas: Mapping[str, str]
    """SVG path of each area, by name; the first is behind the others."""
    lines: Mapping[str, float]
    """Value of each horizontal line, such as a quota, by name; the page has no room for those above `top`."""
    ticks: Sequence[float]
    """Values with a label."""
    times: Sequence[tuple[float, str]]
    """Labels of times, each at a share (percent) of the width."""


def plot(
    title: str,
    columns: Columns,
    unit: str,
    areas: Mapping[str, Sequence[float]],
    values: Mapping[str, float | None],
) -> Plot:
    """Return a plot of series (one value per column), with horizontal lines at `values` except None."""
    lines = {name: value for name, value in values.items() if value is not None}
    highest = max((value for series in areas.values() for value in series), default=0.0)
    near = [value for value in lines.values() if value <= 4 * highest]  # others would flatten the areas
    ticks, top = _ticks(max([highest, *near]), unit)
    thinned = {name: thin(series, POINTS) for name, series in areas.items()}
    count = max((len(series) for series in thinned.values()), default=1)
    step_ms = columns.step_ms * ceil(columns.count / POINTS)
    paths = {name: area(series, top) for name, series in thinned.items()}
    times = _times(columns.from_ms, count * step_ms)
    return Plot(title, unit, count, columns.from_ms, step_ms, top, paths, lines, ticks, times)


def thin(series: Sequence[float], most: int) -> list[float]:
    """Return at most `most` values: the highest of each group of consecutive values.

    >>> thin([1, 5, 2, 3, 4], 3)
    [5, 3, 4]
    """
    size = max(ceil(len(series) / most), 1)
    return [max(series[start : start + size]) for start in range(0, len(series), size)]


def area(series: Sequence[float], top: float) -> str:
    """Return the SVG path of the area below a series' steps, in a box that is as high as the value `top`.

    >>> area([5, 5, 10], 10)
    'M0 400V200h2V0h1V400Z'
    """
    heights = (HEIGHT - round(HEIGHT * min(value / top, 1)) if top else HEIGHT for value in series)
    steps = "".join(f"V{height}h{len(list(same))}" for height, same in groupby(heights))
    return f"M0 {HEIGHT}{steps}V{HEIGHT}Z"


def _ticks(highest: float, unit: str) -> tuple[list[float], float]:
    """Return the values with a label, and the value at the upper edge, a bit above `highest`."""
    if not highest:
        return [1.0], 1.0
    size, _ = unit_of(highest, unit)
    step = _nice(highest / size / 3) * size
    count = ceil(highest / step)
    return [step * index for index in range(1, count + 1)], max(highest * 1.06, count * step)


def _nice(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten, at or above the value."""
    power: float = 10.0 ** int(ceil(log10(value)) - 1)
    return next(times * power for times in (1, 2, 5, 10) if times * power >= value * 0.999)


def _times(from_ms: int, length_ms: float) -> list[tuple[float, str]]:
    steps = [hours * HOUR_MS for hours in _STEPS_H]
    step = next((each for each in steps if length_ms / each <= _TIMES), steps[-1])
    starts = range(-(-from_ms // step) * step, int(from_ms + length_ms), step)
    shares = ((round(100 * (start - from_ms) / length_ms, 2), start) for start in starts)
    return [
        (at, moment(start, "%-d %b" if step >= DAY_MS or start % DAY_MS == 0 else "%H:%M"))
        for at, start in [each for each in shares if each[0] <= 92] or [(0, from_ms)]
    ]
