"""The ledger of one client at one broker: the budgets that it draws on, and what charges them.

A connection looks its client's ledger up once per principal and client-id, and again when quotas have changed
(`BrokerQuotas.generation`). Budgets are shared: by all connections of the client, and by other clients where
a quota says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotas.limiters.budgets import Budget  # fields' types: mypyc wants them at run time
from quotas.request_time import US_PER_PERCENT, RequestBudget

if TYPE_CHECKING:
    from typing import Self


class ClientLedger:
    """What one client is charged with: bytes and request time, enforced and in shadow."""

    __slots__ = ("_percent_per_us", "fetch", "produce", "request", "shadow")

    def __init__(
        self,
        produce: Budget | None = None,
        fetch: Budget | None = None,
        shadow: Self | None = None,
        request: RequestBudget | None = None,
        percent_per_us: float = 1 / US_PER_PERCENT,
    ) -> None:
        """A budget is None where nothing limits the client. `shadow` has the budgets of shadow entries, which
        make nobody wait. A microsecond of the cost model is charged with `percent_per_us`.
        """
        self.produce = produce
        self.fetch = fetch
        self.shadow: ClientLedger | None = shadow
        self.request = request
        self._percent_per_us = percent_per_us

    @property
    def is_empty(self) -> bool:
        """True if nothing is charged."""
        return not (self.charges_produce or self.charges_fetch or self.charges_request)

    @property
    def charges_produce(self) -> bool:
        """True if produced bytes are charged."""
        return self.produce is not None or (self.shadow is not None and self.shadow.produce is not None)

    @property
    def charges_fetch(self) -> bool:
        """True if fetched bytes are charged."""
        return self.fetch is not None or (self.shadow is not None and self.shadow.fetch is not None)

    @property
    def charges_request(self) -> bool:
        """True if request time is charged."""
        return self.request is not None or (self.shadow is not None and self.shadow.request is not None)

    def charge_produce(self, length: int, now_ms: int) -> int:
        """Charge a produce request of this frame length; return how long (ms) its client must wait."""
        shadow, budget = self.shadow, self.produce
        if shadow is not None and shadow.produce is not None:
            shadow.produce.charge(length, now_ms)
        return 0 if budget is None else budget.charge(length, now_ms)

    def charge_fetch(self, length: int, now_ms: int) -> int:
        """Charge a fetch response of this frame length; return how long (ms) its client must wait.

        A broker charges the body plus 4, which is the frame length where the header is not flexible.
        """
        shadow, budget = self.shadow, self.fetch
        if shadow is not None and shadow.fetch is not None:
            shadow.fetch.charge(length, now_ms)
        return 0 if budget is None else budget.charge(length, now_ms)

    def charge_request(self, api_key: int, us: float, now_ms: int) -> int:
        """Charge the request time that one request is estimated to have cost, in microseconds of one thread;
        return how long (ms) its client must wait (KIP-124).
        """
        percent, shadow, budget = us * self._percent_per_us, self.shadow, self.request
        if shadow is not None and shadow.request is not None:
            shadow.request.charge_api(api_key, percent, now_ms)
        return 0 if budget is None else budget.charge_api(api_key, percent, now_ms)
