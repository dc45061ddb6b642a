"""Shadowed: an enforced limiter and a shadow limiter, charged as one; clients wait for the enforced one only.

>>> from weir.quotas.limiters.budgets import Budget
>>> from weir.quotas.table.entities import Tags
>>> enforced, shadow = Budget(Tags("", "app"), 2000, 0), Budget(Tags("", "app"), 1000, 0, is_shadow=True)
>>> limiter = shadowed(enforced, shadow)
>>> limiter.charge(15_000, now_ms=0), enforced.charged, shadow.charged, shadow.throttle_ms_total
(0, 15000.0, 15000.0, 5000)
"""

from __future__ import annotations

from weir.quotas.limiters.chain import AnyBudget
from weir.quotas.limiters.counters import Chargeable


class Shadowed(Chargeable):
    """Charges an enforced and a shadow limiter together. Returns the throttle times of the enforced limiter,
    0 if there is no enforced limiter.
    """

    __slots__ = ("_enforced", "_shadow")

    def __init__(self, enforced: AnyBudget | None, shadow: AnyBudget) -> None:
        """Bundle the limiters of one client. `enforced` is None if only a shadow entry applies."""
        self._enforced = enforced
        self._shadow = shadow

    def charge(self, value: float, now_ms: int) -> int:
        """Charge `value` units to both limiters; return the throttle time (ms) of the enforced one, 0 if only
        the shadow limiter is present.
        """
        self._shadow.charge(value, now_ms)
        return 0 if self._enforced is None else self._enforced.charge(value, now_ms)

    def charge_in_turn(self, value: float, now_ms: int) -> int:
        """Charge `value` units of a fetch response to both limiters; return the throttle time (ms) of the
        enforced one, 0 if only the shadow limiter is present.
        """
        self._shadow.charge(value, now_ms)
        return 0 if self._enforced is None else self._enforced.charge_in_turn(value, now_ms)

    def charge_untold(self, value: float, now_ms: int) -> None:
        """Charge `value` units to both limiters for a response that has no field for a throttle time. The
        shadow limiter still counts the request as throttled.
        """
        self._shadow.charge(value, now_ms)
        if self._enforced is not None:
            self._enforced.charge_untold(value, now_ms)

    def charge_api(self, api_key: int, value: float, now_ms: int) -> int:
        """Charge `value` units to both limiters for a request of this API; return the throttle time (ms) of
        the enforced one, 0 if only the shadow limiter is present.
        """
        self._shadow.charge_api(api_key, value, now_ms)
        return 0 if self._enforced is None else self._enforced.charge_api(api_key, value, now_ms)


def shadowed(enforced: AnyBudget | None, shadow: AnyBudget | None) -> Chargeable | None:
    """Return one limiter that charges the enforced and the shadow limiter. If one of them is None, only the
    other is charged. Return None if both are None.
    """
    return enforced if shadow is None else Shadowed(enforced, shadow)
