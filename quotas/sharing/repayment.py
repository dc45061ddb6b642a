"""Repayment: usage that Kafka's window forgets before the limit has paid for it.

A charge counts for eleven seconds. Clients that use up ten seconds' worth at once, and a second's worth until
that is forgotten, use more than their limit in the long run, the more connections the more. Several Weirs add
what they forward before they hear of each other. So a Weir keeps an account: units that were used, less what
the limit has allowed since. The smallest debt since the last repayment is usage that the window has
forgotten. A Weir charges this debt again, in small parts, so that no client waits long for a burst of others.
A bucket beside Kafka's samples repaid all of it with the next burst: single minutes then got 0.91 of the
limit, and 0.81 with reports that are late by 300 ms.
"""
# mypyc: skip, because no request calls it.

from __future__ import annotations

from typing import Final

REPAID_SHARE_MAX: Final = 0.04
"""Largest repayment, as a share of a window's units: a client that owes much gets 96 % of its limit."""
SPARE_S: Final = 1.5
"""Unused time (s) that is kept: so usage that is reported this much later than it was used is no debt."""
OWED_WINDOWS_MAX: Final = 1.5
"""Number of windows' units that can be owed. Usage beyond that is forgotten, as by Kafka."""


class RepaymentAccount:
    """Account of one limiter: units that were used, less what the limit has allowed since."""

    __slots__ = ("_at_ms", "_began_ms", "_owed", "_owed_min")

    def __init__(self, now_ms: int) -> None:
        self._at_ms = self._began_ms = now_ms
        self._owed = 0.0
        """Units used until `_at_ms` that the limit had not allowed since."""
        self._owed_min = 0.0
        """The smallest number of units that was owed since `_began_ms`."""

    def note(self, units: float, limit: float, window_units: float, period_ms: int, now_ms: int) -> float:
        """Note units that were used now. Return the units to charge again: 0 except once in `period_ms`, the
        time for which a charge counts. `limit` is in units per second; `window_units` are those of a window.
        """
        paid = limit * max(now_ms - self._at_ms, 0) / 1000
        spare = SPARE_S * limit
        owed = max(self._owed - paid, -spare)
        self._at_ms = max(now_ms, self._at_ms)
        self._owed = min(max(owed + units, -spare), OWED_WINDOWS_MAX * window_units)
        self._owed_min = min(self._owed_min, owed)
        if now_ms - self._began_ms < period_ms:
            return 0.0
        smallest, self._owed_min, self._began_ms = self._owed_min, self._owed, now_ms
        return min(max(smallest, 0.0), REPAID_SHARE_MAX * window_units)
