"""Advances: usage of other Weirs that is charged before they report it.

Reports are late, and clients that wait for the same limit begin again at all Weirs at the same time. So what
own clients use now says what the others' clients use meanwhile. A Weir charges that in advance, and takes it
off from the next reports. What nobody has reported in time was not used, and is given back.

- Each other Weir is expected to use as much as this one. In proportion to former usage, one client at each of
  three Weirs got up to 1.134 of the limit (30 seeds, reports late by up to 300 ms).
- A rest is given back by a negative charge. Taking it out of the samples of its own second gave down to 0.89.
"""
# mypyc: skip, because no request calls it.

from __future__ import annotations

from collections import deque
from typing import Final

KEPT_MS: Final = 1000
"""Time (ms) after which an advance is given back. A report is due after half of it, and travels meanwhile."""


class Advances:
    """Units that were charged to one limiter before the reports about them."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[tuple[int, float]] = deque()
        """(Time in ms, units), the oldest first."""

    @property
    def units(self) -> float:
        """Units that were neither reported nor given back yet."""
        return sum(units for _at_ms, units in self._kept)

    def add(self, units: float, now_ms: int) -> None:
        """Note units that are charged now."""
        if units > 0:
            self._kept.append((now_ms, units))

    def settle(self, units: float) -> float:
        """Take reported units off from the oldest advances. Return the rest, which was not charged yet."""
        while self._kept and units > 0:
            at_ms, advanced = self._kept.popleft()
            settled = min(advanced, units)
            units -= settled
            if advanced > settled:
                self._kept.appendleft((at_ms, advanced - settled))
        return units

    def expire(self, now_ms: int) -> float:
        """Forget advances that are older than `KEPT_MS`, and return their units."""
        expired = 0.0
        while self._kept and now_ms - self._kept[0][0] >= KEPT_MS:
            expired += self._kept.popleft()[1]
        return expired
