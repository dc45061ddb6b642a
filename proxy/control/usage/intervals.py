"""Interval ends: multiples of the interval's length on the wall clock, so that records of all Weirs align.

A monotonic clock measures the length. The two clocks are compared at each end: setting the wall clock,
forwards or back, moves the next records, and makes none of them longer or shorter.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SLACK_SHARE: Final = 20
"""An end that is missed by less than a 20th of an interval counts as met: records that align are better than
exact odd times.
"""
SLACK_MS_MAX: Final = 100


class Interval(NamedTuple):
    """The time that records cover."""

    time_ms: int
    """Unix time (ms) of the beginning."""
    length_ms: int
    """Length (ms), at least 1."""


class Intervals:
    """Consecutive intervals, without gaps unless the wall clock is set."""

    def __init__(self, length_ms: int, wall_ms: int, mono_ms: int) -> None:
        """Begin the first interval now: Unix time, and any monotonic time."""
        self._length_ms = length_ms
        self._slack_ms = min(max(length_ms // SLACK_SHARE, 1), SLACK_MS_MAX)
        self._begin_ms = wall_ms
        self._begin_mono_ms = mono_ms
        self.stepped_ms = 0
        """Time (ms) by which the wall clock was set during the last interval, positive if forwards."""

    def wait_ms(self, wall_ms: int) -> int:
        """Return the time (ms) until the interval should end."""
        end_ms = (self._begin_ms // self._length_ms + 1) * self._length_ms
        return min(max(end_ms - wall_ms, 0), self._length_ms + self._slack_ms)

    def next(self, wall_ms: int, mono_ms: int, *, last: bool = False) -> Interval:
        """End the interval now, and begin another. The last one ends early."""
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
        """Return the nearest multiple of the length if the end was close to it, else the wall time."""
        nearest_ms = (wall_ms + self._length_ms // 2) // self._length_ms * self._length_ms
        met = abs(wall_ms - nearest_ms) <= self._slack_ms and nearest_ms > begin_ms
        return nearest_ms if met else wall_ms
