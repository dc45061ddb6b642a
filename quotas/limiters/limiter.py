"""Limiter: what all limiters have in common, whatever they count and however they compute a wait.

A limiter can be shared with others that enforce the same limit elsewhere: `delta` says what was charged here
since it was last asked, and the others `absorb` that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from quotas.entities import Tags

UNLIMITED: Final = math.inf
"""The limit of a limiter that makes nobody wait."""


class Limiter(Protocol):
    """One limit, what was used of it, and counters. Times are ms on one clock."""

    tags: Tags
    """Who shares the limit."""
    limit: float
    """Units per second, `UNLIMITED` for none."""
    charged: float
    """Number of units ever charged here."""
    charged_ms: int
    """Time of the last charge, here or elsewhere, or of the beginning."""
    throttled: int
    """Number of charges that made somebody wait."""
    throttle_ms_total: int
    """Sum of their waits."""

    def charge(self, units: float, now_ms: int) -> int:
        """Charge `units`; return the time (ms) that their sender must wait, 0 if within the limit."""

    def delta(self) -> float:
        """Return the units that were charged here since this was last asked."""

    def absorb(self, units: float, now_ms: int) -> None:
        """Record units that were charged elsewhere. Nobody waits at this moment: the next charge counts
        them.
        """

    def rate(self, now_ms: int) -> float:
        """Return the rate now, in units per second. Changes nothing: for metrics."""

    def set_limit(self, limit: float) -> None:
        """Replace the limit; used units stay used."""

    def is_idle(self, now_ms: int) -> bool:
        """Return whether no charge counts any more, and no wait lasts beyond `now_ms`."""
