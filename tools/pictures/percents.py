"""The axes of a chart of percents over seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tools.pictures import svg

LEFT, TOP, BOTTOM = 60, 92, 66
"""Pixels around the chart."""
END: Final = svg.WIDTH - svg.MARGIN


class PercentAxes(NamedTuple):
    """Axes of a picture, with the marks of each."""

    height: int
    """Height (pixels) of the picture."""
    percents: range
    seconds: range

    @property
    def ground(self) -> int:
        """Height (pixels) of 0 percent, from the top."""
        return self.height - BOTTOM

    def y(self, percent: float) -> float:
        """Return the height (pixels) of a percentage, from the top."""
        return self.ground - percent * ((self.ground - TOP) / self.percents[-1])

    def outline(self, percents: Sequence[float], intervals: int) -> str:
        """Return the points of a line. `intervals`: number of steps between points that fill the width."""
        step = (END - LEFT) / intervals
        return "L".join(
            f"{LEFT + number * step:.1f} {self.y(percent):.1f}" for number, percent in enumerate(percents)
        )

    def grid(self) -> Iterator[str]:
        """Yield the lines and the labels of the marks."""
        for percent in self.percents:
            yield svg.line(LEFT, self.y(percent), END, self.y(percent), "grid")
            yield svg.text(LEFT - 8, self.y(percent) + 4, f"{percent}", "small muted", "end")
        first, last = self.seconds[0], self.seconds[-1]
        for second in self.seconds:
            x = LEFT + (second - first) * (END - LEFT) / (last - first)
            anchor = "middle" if second < last else "end"
            yield svg.text(x, self.ground + 18, f"{second} s", "small muted", anchor)
