"""Limiter: the common protocol of limiters.

Several limiters, in different processes, can enforce one limit together: each reports its new charges by
`delta`, and the others `absorb` them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.quotas.table.entities import Tags

UNLIMITED: Final = math.inf
"""Limit of a limiter that never throttles."""


class Limiter(Protocol):
    """Protocol of an object that has one limit, measures the usage under the limit, and counts charges and
    throttles. Times are ms on one clock.
    """

    tags: Tags
    """Tags (user, client-id and other names) of the clients that share the limit."""
    limit: float
    """Units per second; `UNLIMITED` for no limit."""
    charged: float
    """Number of units charged by `charge` since this limiter was created."""
    charged_ms: int
    """Time (ms) of the last call of `charge` or `absorb`; before the first call, the time at which the
    limiter was created.
    """
    throttled: int
    """Number of calls of `charge` that returned a throttle time above 0."""
    throttle_ms_total: int
    """Sum of the throttle times (ms) that calls of `charge` returned."""

    def charge(self, units: float, now_ms: int) -> int:
        """Charge `units`; return the throttle time (ms), 0 if the usage is within the limit."""

    def watch(self, note: Callable[[Tags], None]) -> None:
        """Call `note` with the tags of this limiter, now and before later charges: before the first charge
        after a window without a call, and as the limiter likes at other times.
        """

    def delta(self) -> float:
        """Return the units charged since the previous call of `delta`."""

    def absorb(self, units: float, now_ms: int) -> None:
        """Record units that another process or limiter has charged under the same limit. They lengthen the
        throttle time of the next charge here.
        """

    def rate(self, now_ms: int) -> float:
        """Return the current rate in units per second, for metrics. Has no effect on later charges."""

    def set_limit(self, limit: float) -> None:
        """Replace the limit (units per second). The usage so far stays, and counts against the new limit."""

    def is_idle(self, now_ms: int) -> bool:
        """Return True if removing the limiter would lose nothing: no former charge can add to a later
        throttle time, and no throttle time that was returned lasts beyond `now_ms`.
        """
