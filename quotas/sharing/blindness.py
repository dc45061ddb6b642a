"""Blindness: the part of a shared limit that a Weir uses while reports do not get through.

A Weir that does not read its own reports back knows that nobody hears them. It then keeps to its last share
of the usage, and moves to an equal share within a minute. The shares of all Weirs add up to the limit while
all are blind and agree on their number.
"""
# mypyc: skip, because no request calls it.

from __future__ import annotations

from enum import Enum
from typing import Final

BLIND_MS: Final = 3000
"""Time (ms) without an own report read back after which a Weir is blind."""
EVEN_MS: Final = 60_000
"""Time (ms) after which a blind Weir uses an equal share."""
START_MS: Final = 5000
"""Maximum time (ms) for which a new Weir waits for the last reports of others."""
STARTING_WEIRS: Final = 2
"""Number of Weirs that a new Weir assumes at least, until it has read the topic."""
PART_MIN: Final = 0.01
"""Smallest part of a limit that a blind Weir uses. A part of 0 would lock its clients out."""


class Sight(Enum):
    """State of hearing the other Weirs."""

    STARTING = "starting"
    """The last reports of the others are not read yet."""
    CLEAR = "clear"
    BLIND = "blind"
    """Own reports do not come back."""
    NEVER = "never"
    """The reports could not be read since the start: limits apply as without sharing."""


class Blindness:
    """Decides from the times of own reports whether this Weir hears the others."""

    def __init__(self, now_ms: int) -> None:
        """Begin at `now_ms`, before anything was read."""
        self.sight = Sight.STARTING
        self.weirs = 1
        """Number of Weirs that share limits; while blind, the number before."""
        self._began_ms = self._heard_ms = self._blind_ms = self._now_ms = now_ms
        self._is_new = False
        """True if `sight` has changed between two calls of `look`."""

    def heard(self, weirs: int, now_ms: int) -> None:
        """Note that an own report was read back, so all former reports of others, too."""
        self._is_new = self._is_new or self.sight is not Sight.CLEAR
        self.sight, self.weirs, self._heard_ms = Sight.CLEAR, max(weirs, 1), now_ms

    def look(self, now_ms: int) -> bool:
        """Take the time into account; return True if limits must be computed again."""
        before, is_new, self._now_ms, self._is_new = self.sight, self._is_new, now_ms, False
        if before is Sight.STARTING and now_ms - self._began_ms >= START_MS:
            self.sight = Sight.NEVER
        elif before is Sight.CLEAR and now_ms - self._heard_ms >= BLIND_MS:
            self.sight, self._blind_ms = Sight.BLIND, now_ms
        return is_new or self.sight is not before or self.sight is Sight.BLIND

    def blind_for_ms(self, now_ms: int) -> int:
        """Return the time (ms) since this Weir became blind; 0 if it is not blind."""
        return max(now_ms - self._blind_ms, 0) if self.sight is Sight.BLIND else 0

    def part(self, share: float | None) -> float:
        """Return the part of a limit, above 0 and at most 1, to use at the time of the last `look`. `share`:
        this Weir's share of the last usage under the limit; None if there was no usage.
        """
        if self.sight is Sight.STARTING:
            return 1 / max(self.weirs, STARTING_WEIRS)
        if self.sight is not Sight.BLIND:
            return 1.0
        even = 1 / self.weirs
        alpha = min((self._now_ms - self._blind_ms) / EVEN_MS, 1.0)
        part = (1 - alpha) * (even if share is None else share) + alpha * even
        return min(max(part, PART_MIN), 1.0)


class GivenBlindness(Blindness):
    """Blindness in a process that gets the state from another one, which reads the reports."""

    def set(self, sight: Sight, weirs: int, blind_ms: int) -> None:
        """Replace the state by that of the other process. `blind_ms`: time (ms) at which it became blind."""
        self._is_new = self._is_new or sight is not self.sight
        self.sight, self.weirs, self._blind_ms = sight, weirs, blind_ms

    def look(self, now_ms: int) -> bool:
        """Take the time into account; return True if limits must be computed again."""
        is_new, self._is_new, self._now_ms = self._is_new, False, now_ms
        return is_new or self.sight is Sight.BLIND
