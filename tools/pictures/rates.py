"""A chart of a producer's rate in each second, before and after its quota."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tools.pictures import PictureError, svg

HEIGHT, LEFT, TOP, BOTTOM = 310, 52, 80, 66
"""Pixels: of the picture, and around the chart."""
MB: Final = 1e6


class Rates(NamedTuple):
    """Rates of one client in each second."""

    before: list[float]
    """Rates (bytes/s) in the seconds before Weir's quota file had the quota; the last one ended then."""
    after: list[float]
    """Rates (bytes/s) in the seconds after that."""
    quota: int
    """Byte rate (bytes/s) that the quota allows."""
    demand: int
    """Byte rate (bytes/s) that the client asks for all the time."""


def by_second(samples: Sequence[tuple[float, int]], began_s: float) -> list[float]:
    """Return the bytes in each full second from `began_s` on. A sample is a time (s) and the bytes until
    then, in ascending order; between two samples the bytes are spread evenly. Raises PictureError if there
    are too few samples.
    """
    if len(samples) < 2 or not samples[0][0] <= began_s <= samples[-1][0] - 1:
        raise PictureError(f"{len(samples)} samples do not cover a second from {began_s:g} s on")
    seconds = math.floor(samples[-1][0] - began_s + 1e-9)
    totals = [_total(samples, min(began_s + second, samples[-1][0])) for second in range(seconds + 1)]
    return [totals[second + 1] - totals[second] for second in range(seconds)]


def _total(samples: Sequence[tuple[float, int]], at_s: float) -> float:
    number = max(1, bisect_left(samples, at_s, key=lambda sample: sample[0]))
    (from_s, before), (to_s, after) = samples[number - 1], samples[number]
    return before + (after - before) * (at_s - from_s) / (to_s - from_s)


def draw(rates: Rates, footnote: str) -> str:
    """Return the SVG: one step per second, and a mark where the quota begins."""
    values = [*rates.before, *rates.after]
    top = round(max(values) / MB) + 1
    step = (svg.WIDTH - LEFT - svg.MARGIN) / len(values)
    floor = HEIGHT - BOTTOM
    per_mb = (floor - TOP) / top
    outline = "L".join(
        f"{LEFT + number * step:.1f} {floor - rate / MB * per_mb:.1f}L"
        f"{LEFT + (number + 1) * step:.1f} {floor - rate / MB * per_mb:.1f}"
        for number, rate in enumerate(values)
    )
    end = LEFT + len(values) * step
    body = [
        svg.text(
            svg.MARGIN,
            58,
            f"MB/s acknowledged in each second; the producer asks for {rates.demand / MB:g} MB/s",
            "small muted",
        ),
        *_grid(top, per_mb, floor),
        f'<path class="area" d="M{LEFT} {floor}L{outline}L{end:.1f} {floor}Z"/>',
        f'<path class="line" d="M{outline}"/>',
        *_marks(rates, step, floor, per_mb),
    ]
    return svg.page(
        HEIGHT, f"One producer before and after its quota of {rates.quota / MB:g} MB/s", body, footnote
    )


def _grid(top: int, per_mb: float, floor: int) -> Iterator[str]:
    for mb in range(top + 1):
        y = floor - mb * per_mb
        yield svg.line(LEFT, y, svg.WIDTH - svg.MARGIN, y, "grid")
        yield svg.text(LEFT - 8, y + 4, str(mb), "small muted", "end")


def _marks(rates: Rates, step: float, floor: int, per_mb: float) -> Iterator[str]:
    x = LEFT + len(rates.before) * step
    yield svg.line(x, TOP - 8, x, floor, "mark")
    yield svg.text(x + 8, TOP + per_mb / 2 + 4.5, "the quota is written into quotas.toml")
    y = floor - rates.quota / MB * per_mb
    yield svg.line(x, y, svg.WIDTH - svg.MARGIN, y, "mark")
    yield svg.text(svg.WIDTH - svg.MARGIN, y - per_mb / 2, f"quota {rates.quota / MB:g} MB/s", "", "end")
    for second in range(0, len(rates.after) + 1, 5):
        yield svg.text(
            x + second * step,
            floor + 18,
            f"{second} s",
            "small muted",
            "middle" if second < len(rates.after) else "end",
        )
    yield svg.text(LEFT + len(rates.before) * step / 2, floor + 18, "no quota", "small muted", "middle")
