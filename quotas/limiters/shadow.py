"""Shadowed: a limiter and a shadow limiter, which is charged the same and makes nobody wait.

>>> from quotas.table.entities import Tags
>>> enforced, shadow = Budget(Tags("", "app"), 2000, 0), Budget(Tags("", "app"), 1000, 0, is_shadow=True)
>>> limiter = shadowed(enforced, shadow)
>>> limiter.charge(15_000, now_ms=0), enforced.charged, shadow.charged, shadow.throttle_ms_total
(0, 15000.0, 15000.0, 5000)
"""

from __future__ import annotations

from typing import TypeVar

from quotas.limiters.budgets import Budget, Chargeable


class Shadowed(Chargeable):
    """Charges go to both limiters; the enforced one, if there is one, says how long to wait."""

    __slots__ = ("_enforced", "_shadow")

    def __init__(self, enforced: Budget | None, shadow: Budget) -> None:
        """Stand in for `enforced`, wherever that is charged."""
        self._enforced = enforced
        self._shadow = shadow

    def charge(self, value: float, now_ms: int) -> int:
        """Charge both; return the wait (ms) of the enforced limiter."""
        self._shadow.charge(value, now_ms)
        return 0 if self._enforced is None else self._enforced.charge(value, now_ms)

    def charge_untold(self, value: float, now_ms: int) -> None:
        """Charge both, for a response that can tell no throttle time; the shadow counts the violation."""
        self._shadow.charge(value, now_ms)
        if self._enforced is not None:
            self._enforced.charge_untold(value, now_ms)

    def charge_api(self, api_key: int, value: float, now_ms: int) -> int:
        """Charge a request of this API to both; return the wait (ms) of the enforced limiter."""
        self._shadow.charge_api(api_key, value, now_ms)
        return 0 if self._enforced is None else self._enforced.charge_api(api_key, value, now_ms)


B = TypeVar("B", bound=Budget)


def shadowed(enforced: B | None, shadow: B | None) -> Chargeable | None:
    """Return what to charge where these two limiters apply; None if neither does."""
    return enforced if shadow is None else Shadowed(enforced, shadow)
