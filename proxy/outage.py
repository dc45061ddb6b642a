"""Log an error that recurs: when it begins, when its reason changes, once a minute while it lasts, and once
when it is over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

import structlog

REMIND_S: Final = 60.0
"""Time (s) between two lines about an outage that lasts."""
CHANGED_S: Final = 0.5
"""Minimum time (s) between two lines about an outage whose reason changes."""


class Outage:
    """One thing that can be broken, and works again later. Call `failed` at each failure, `over` at each
    success; both are cheap if there is nothing to log.
    """

    __slots__ = (
        "_again",
        "_began_s",
        "_broken",
        "_clock",
        "_count",
        "_details",
        "_failed_s",
        "_level",
        "_log",
        "_quiet_s",
        "_said_s",
        "_told",
        "_wall_s",
        "changed_s",
        "failing",
        "reason",
    )

    def __init__(
        self,
        logger: structlog.types.FilteringBoundLogger,
        broken: str,
        again: str,
        *,
        level: str = "error",
        quiet_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """Begin without an outage. `broken` and `again` are the events of the two log lines, `level` is the
        log level of `broken`; `again` has the level info. A success ends the outage if the latest failure
        is at least `quiet_s` (s) ago: set it where peers can cause failures and successes at any rate.
        `clock` returns the time (s), `wall_s` the Unix time (s).
        """
        self._log = logger
        self._broken = broken
        self._again = again
        self._level = level
        self._clock = clock
        self._wall_s = wall_s
        self.failing = False
        """True if the latest attempt has failed. Unlike the outage, it knows no quiet time."""
        self.changed_s = 0.0
        """Unix time (s) at which `failing` has changed; 0 before the first failure."""
        self.reason: str | None = None
        """Reason of the latest attempt's failure; None for a success, and if no reason was given."""
        self._count = 0
        """Number of failures of the present outage; 0 outside of outages."""
        self._began_s = 0.0
        self._failed_s = self._said_s = -math.inf
        self._quiet_s = quiet_s
        self._told = False
        """True if the log has the beginning of the present outage."""
        self._details: dict[str, object] = {}
        """Details of the latest line."""

    def __bool__(self) -> bool:
        return self._count > 0

    def failed(self, **details: object) -> None:
        """Count a failure. Log it if it is the first, if its details have changed, or once a minute."""
        now_s = self.record(details.get("reason"))
        if now_s - self._said_s < (REMIND_S if details == self._details else CHANGED_S):
            return
        self._said_s, self._details, self._told = now_s, details, True
        failures = {"failures": self._count} if self._count > 1 else {}
        getattr(self._log, self._level)(self._broken, **details, **failures)  # bound now: levels can change

    def record(self, reason: object) -> float:
        """Count a failure that another line of the log tells. Return the time (s)."""
        now_s = self._failed_s = self._clock()
        if not self.failing:
            self.failing, self.changed_s = True, self._wall_s()
        if not self._count:
            self._began_s, self._said_s, self._told = now_s, -math.inf, False
        self._count += 1
        self.reason = None if reason is None else str(reason)
        return now_s

    def say_next(self) -> None:
        """Have the next failure logged, because an operator has asked for another attempt."""
        self._said_s = -math.inf

    def over(self, **details: object) -> bool:
        """Note a success, which ends the outage. Log its end if its beginning was logged, and return True
        then.
        """
        if self.failing:
            self.failing, self.reason, self.changed_s = False, None, self._wall_s()
        if not self._count or (now_s := self._clock()) - self._failed_s < self._quiet_s:
            return False
        count, self._count = self._count, 0
        if self._told:
            lasted_s = round(now_s - self._began_s, 1)
            self._log.info(self._again, **details, failures=count, lasted_s=lasted_s)
        return self._told
