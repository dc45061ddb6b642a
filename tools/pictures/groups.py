"""A chart of a simulated group over time: a member with a floor, and those who borrow what it leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.quotas.group_world import LIMIT, SIZE, SimulatedMember, charge
from tools.pictures import svg
from tools.pictures.percents import END, LEFT, TOP, PercentAxes
from weir.quotas.limiters.smooth import SmoothBudget

FLOOR: Final = 0.4
DEMAND: Final = 0.36
"""Demand of the member with the floor, as a share of the limit."""
BORROWERS: Final = 4
BEGIN_S, END_S, FROM_S, UNTIL_S = 50, 100, 20, 140
"""Seconds in which this member sends, and those that the picture shows: the first window is a burst."""
WINDOW_S: Final = 2
"""Length (s) of the time for each mean rate."""
AXES: Final = PercentAxes(360, range(0, 121, 20), range(FROM_S, UNTIL_S + 1, 20))


class GroupRates(NamedTuple):
    """Rates in percent of the limit in each second, and the longest waits (ms)."""

    member: list[float]
    borrowers: list[float]
    member_wait_ms: int
    borrower_wait_ms: int


def simulate() -> GroupRates:
    """Return the rates of the member with the floor, and of borrowers who each want the whole limit."""
    member = SimulatedMember(DEMAND, FLOOR, sends_ms=range(1000 * BEGIN_S, 1000 * END_S))
    used, waits_ms = ([0.0] * UNTIL_S, [0.0] * UNTIL_S), [0, 0]
    borrowers = [SimulatedMember(1.0)] * BORROWERS
    for at_ms, number, wait_ms in charge([member, *borrowers], 1000 * UNTIL_S, SmoothBudget):
        borrows = number > 0
        used[borrows][at_ms // 1000] += 100 * SIZE / LIMIT
        if at_ms >= 1000 * FROM_S:
            waits_ms[borrows] = max(waits_ms[borrows], wait_ms)
    return GroupRates(_means(used[False]), _means(used[True]), *waits_ms)


def _means(percents: Sequence[float]) -> list[float]:
    seconds = range(FROM_S, UNTIL_S)
    return [sum(percents[second - WINDOW_S : second]) / WINDOW_S for second in seconds]


def draw(found: GroupRates, footnote: str) -> str:
    """Return the SVG: the sum as an area, that of the member with the floor, and lines at both limits."""
    total = [sum(both) for both in zip(found.member, found.borrowers, strict=True)]
    legend = f"percent of the limit; light: {BORROWERS} borrowers who each want all of it; dark: the member"
    body = [
        svg.text(svg.MARGIN, 58, legend, "small muted"),
        *AXES.grid(),
        _area(total, "area"),
        _area(found.member, "c3"),
        *_marks(found),
    ]
    title = f"A member with a floor of {100 * FLOOR:.0f} % of its group's limit comes, and goes"
    return svg.page(AXES.height, title, body, footnote)


def _area(percents: Sequence[float], kind: str) -> str:
    outline = AXES.outline(percents, len(percents) - 1)
    return f'<path class="{kind}" d="M{LEFT} {AXES.ground}L{outline}L{END} {AXES.ground}Z"/>'


def _marks(found: GroupRates) -> Iterator[str]:
    for percent, name in ((100, "limit of the group"), (100 * FLOOR, "floor of the member")):
        y = AXES.y(percent)
        yield svg.line(LEFT, y, END, y, "mark")
        yield svg.text(END, y - 6, name, "small", "end")
    said = (
        f"longest wait of the member: {found.member_wait_ms} ms, of a borrower: {found.borrower_wait_ms} ms"
    )
    yield svg.text(LEFT + 8, TOP + 12, said, "small")
