"""Limiter: the common protocol of limiters.

Several limiters, in different processes, can enforce one limit together: each reports its new charges by
`delta`, and the others `absorb` them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from quotas.table.entities import Tags

UNLIMITED: Final = math.inf
"""Limit of a limiter that never throttles."""


class Limiter(Protocol):
    """One limit, its usage, and counters. Times are ms on one clock."""

    tags: Tags
    """Tags of the clients that share the limit."""
    limit: float
    """Units per second; `UNLIMITED` for no limit."""
    charged: float
    """Number of units charged by `charge` since the beginning."""
    charged_ms: int
    """Time (ms) of the last `charge` or `absorb`, or of the beginning."""
    throttled: int
    """Number of charges that returned a throttle time."""
    throttle_ms_total: int
    """Sum of the throttle times (ms) that charges returned."""

    def charge(self, units: float, now_ms: int) -> int:
        """Charge `units`; return the throttle time (ms), 0 if the usage is within the limit."""

    def delta(self) -> float:
        """Return the units charged since the previous call of `delta`."""

    def absorb(self, units: float, now_ms: int) -> None:
        """Record units that were charged elsewhere. They count for the throttle time of the next charge."""

    def rate(self, now_ms: int) -> float:
        """Return the current rate in units per second, for metrics. Has no effect on later charges."""

    def set_limit(self, limit: float) -> None:
        """Replace the limit; used units stay used."""

    def is_idle(self, now_ms: int) -> bool:
        """Return True if no former charge counts any more, and no throttle lasts beyond `now_ms`."""
