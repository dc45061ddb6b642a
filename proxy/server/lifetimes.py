"""Look at all connections every few seconds, and end those that have reached a limit of their life."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.lifetime import LifetimeLimits, reached_limit
from weir.proxy.control.snapshots.opened import OpenRelays

if TYPE_CHECKING:
    from weir.proxy.config.settings import Settings

LOOK_S_MAX: Final = 10.0
"""Maximum time (s) between two looks at a connection."""
LOOK_S_MIN: Final = 0.1
LOOKS: Final = 10
"""Number of looks within the smallest limit: a limit is kept to a tenth, or to `LOOK_S_MIN`."""
STEP: Final = 100
"""Number of connections that one step looks at, in less than 1 ms; sockets are served between steps."""
RETIRED_SHARE: Final = 20
"""At each look, at most one connection in this number is drained for its age. So a new limit, or one that
many connections reach together, does not make all clients reconnect at once.
"""


class Lifetimes:
    """Ends connections at their limits (`connection.lifetime`)."""

    def __init__(self, relays: OpenRelays, settings: Callable[[], Settings]) -> None:
        """Begin with no limit reached. `relays` has all open connections, at any time. `settings` returns the
        settings in force.
        """
        self._relays = relays
        self._settings = settings

    @property
    def limits(self) -> LifetimeLimits:
        settings = self._settings()
        in_s = settings.connection_age_max_s, settings.login_timeout_s
        return LifetimeLimits(*(round(limit_s * 1000) for limit_s in in_s))

    def period_s(self) -> float:
        """Return the time (s) between two looks at a connection."""
        smallest_ms = min((limit_ms for limit_ms in self.limits if limit_ms), default=0)
        return min(max(smallest_ms / 1000 / LOOKS, LOOK_S_MIN), LOOK_S_MAX) if smallest_ms else LOOK_S_MAX

    def look(self, now_ms: Callable[[], int]) -> Iterator[None]:
        """Look at every connection once, in steps; nothing if there are no limits."""
        limits = self.limits
        if not any(limits):
            return
        relays = list(self._relays.items())
        may_retire = len(relays) // RETIRED_SHARE + 1
        for begin in range(0, len(relays), STEP):
            time_ms = now_ms()
            for relay, opened in relays[begin : begin + STEP]:
                reason = reached_limit(relay.connection, opened.opened_ms, opened.id, limits, time_ms)
                if reason is CloseReason.CONNECTION_AGE and may_retire:
                    may_retire -= 1
                    relay.drain(reason)
                elif reason is not None and reason is not CloseReason.CONNECTION_AGE:
                    relay.close(reason)
            yield
