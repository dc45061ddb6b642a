"""When an interval ends: at multiples of its length on the wall clock, so that those of all Weirs line up.

How long it was is what a monotonic clock says. The two are compared at each end: a wall clock that was set
anew, forwards or back, moves the next records, and makes none of them longer or shorter.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SLACK_SHARE: Final = 20
"""An end that is missed by less than a 20th of an interval is taken for met: the loop was busy, and says so
better by records that line up than by exact odd times.
"""
SLACK_MS_MAX: Final = 100


class Interval(NamedTuple):
    """What records are about."""

    time_ms: int
    """Its beginning, in ms since 1970."""
    length_ms: int
    """At least 1."""


class Intervals:
    """One after the other, without gaps for as long as nobody sets the wall clock."""

    def __init__(self, length_ms: int, wall_ms: int, mono_ms: int) -> None:
        """The first one begins now: wall time since 1970, and the monotonic clock's, whose origin is any."""
        self._length_ms = length_ms
        self._slack_ms = min(max(length_ms // SLACK_SHARE, 1), SLACK_MS_MAX)
        self._begin_ms = wall_ms
        self._begin_mono_ms = mono_ms
        self.stepped_ms = 0
        """How far the wall clock was set, forwards if above 0, in the interval that ended last."""

    def wait_ms(self, wall_ms: int) -> int:
        """Return how long it is until the interval should end."""
        end_ms = (self._begin_ms // self._length_ms + 1) * self._length_ms
        return min(max(end_ms - wall_ms, 0), self._length_ms + self._slack_ms)

    def next(self, wall_ms: int, mono_ms: int, *, last: bool = False) -> Interval:
        """End the interval now, and begin another. The last one ends where it is cut off."""
        passed_ms = max(mono_ms - self._begin_mono_ms, 1)
        begin_ms = self._begin_ms
        self.stepped_ms = wall_ms - passed_ms - begin_ms
        if abs(self.stepped_ms) > self._slack_ms:
            begin_ms = wall_ms - passed_ms
        else:
            self.stepped_ms = 0
        end_ms = max(wall_ms if last else self._aligned(wall_ms, begin_ms), begin_ms + 1)
        self._begin_ms = end_ms
        self._begin_mono_ms = mono_ms - (wall_ms - end_ms)
        return Interval(begin_ms, end_ms - begin_ms)

    def _aligned(self, wall_ms: int, begin_ms: int) -> int:
        """Return the end that was aimed at, if it was met."""
        nearest_ms = (wall_ms + self._length_ms // 2) // self._length_ms * self._length_ms
        met = abs(wall_ms - nearest_ms) <= self._slack_ms and nearest_ms > begin_ms
        return nearest_ms if met else wall_ms
