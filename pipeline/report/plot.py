"""Plots by time as SVG: each period is a step, so a plot of one period shows it, too.

A plot is a box of one unit per column by `HEIGHT` units, which the page stretches to its room. Labels lie on
it at shares of its size, so they keep their form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, log10
from typing import Final, NamedTuple

from weir.pipeline.report.model import DAY_MS, HOUR_MS, Columns
from weir.pipeline.report.units import Quantity, moment

HEIGHT: Final = 400
POINTS: Final = 180
"""Maximum number of steps of a plot; a longer series shows the highest value of several columns."""
SPARKS: Final = 60
"""Maximum number of steps of a sparkline."""
_TIMES: Final = 5
_STEPS_MS: Final = tuple(
    [hours * HOUR_MS for hours in (1, 2, 3, 6, 12)]
    + [days * DAY_MS for days in (1, 2, 4, 7, 14, 28, 56, 112)]
)


class Tick(NamedTuple):
    """A label at a share (percent) of the plot's width or height."""

    at: float
    text: str


class Line(NamedTuple):
    """A horizontal line, such as a quota."""

    name: str
    at: float | None
    """Distance (percent of the height) from the upper edge; None above it."""
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Areas and lines over time, in one quantity."""

    title: str
    count: int
    """Number of steps."""
    from_ms: int
    step_ms: float
    top: float
    """Value at the upper edge."""
    unit: str
    """Base unit of the values."""
    areas: Mapping[str, str]
    """SVG path of each area, by name; the first is behind the others."""
    lines: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    times: tuple[Tick, ...]


def plot(
    title: str,
    columns: Columns,
    quantity: Quantity,
    areas: Mapping[str, Sequence[float]],
    lines: Mapping[str, float] | None = None,
) -> Plot:
    """Return a plot of series (one value per column), with horizontal lines at the values of `lines`."""
    lines = lines or {}
    highest = max((value for series in areas.values() for value in series), default=0.0)
    near = [value for value in lines.values() if value <= 4 * highest]  # others would flatten the areas
    ticks, top = _ticks(max(highest, *near, 0.0) if near else highest, quantity)
    thinned = {name: thin(series, POINTS) for name, series in areas.items()}
    count = max((len(series) for series in thinned.values()), default=1)
    step_ms = columns.step_ms * ceil(columns.count / POINTS)
    return Plot(
        title,
        count,
        columns.from_ms,
        step_ms,
        top,
        quantity.base.name,
        {name: area(series, top) for name, series in thinned.items()},
        tuple(_line(name, value, top, quantity) for name, value in lines.items()),
        ticks,
        _times(columns.from_ms, count * step_ms),
    )


def _line(name: str, value: float, top: float, quantity: Quantity) -> Line:
    text = f"{name} {quantity.text(value)}"
    return (
        Line(name, round(100 - 100 * value / top, 2), text)
        if value <= top
        else Line(name, None, f"{text}, far above")
    )


def spark(series: Sequence[float]) -> str:
    """Return the SVG path of a small plot, as high as its highest value."""
    return area(thin(series, SPARKS), max(series, default=0.0))


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


def _ticks(highest: float, quantity: Quantity) -> tuple[tuple[Tick, ...], float]:
    """Return the labels of a vertical axis, and the value at its upper edge, a bit above `highest`."""
    size = quantity.step(highest).size if highest else 1.0
    step = _nice(highest / size / 3) * size if highest else 1.0
    count = max(ceil(highest / step), 1)
    top = max(highest * 1.06, count * step) if highest else 1.0
    values = [step * index for index in range(1, count + 1)]
    return tuple(Tick(round(100 - 100 * value / top, 2), quantity.text(value)) for value in values), top


def _nice(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten, at or above the value."""
    power: float = 10.0 ** int(ceil(log10(value)) - 1)
    return next(times * power for times in (1, 2, 5, 10) if times * power >= value * 0.999)


def _times(from_ms: int, length_ms: float) -> tuple[Tick, ...]:
    step = next((each for each in _STEPS_MS if length_ms / each <= _TIMES), _STEPS_MS[-1])
    first = -(-from_ms // step) * step
    starts: Iterable[int] = range(first, int(from_ms + length_ms), step)
    ticks = [Tick(round(100 * (start - from_ms) / length_ms, 2), _time(start, step)) for start in starts]
    return tuple(tick for tick in ticks if tick.at <= 92) or (Tick(0, _time(from_ms, step)),)


def _time(start: int, step: int) -> str:
    return moment(start, "%-d %b" if step >= DAY_MS or start % DAY_MS == 0 else "%H:%M")
