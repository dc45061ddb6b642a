"""Connection quotas: how many connections per second (KIP-612), and how many at a time.

Three rates, each over the same window as the client quotas and with no wait longer than one window:

* of the whole process and of a listener: a connection above it is accepted, but late; those behind it wait in
  the kernel's backlog. Of both waits the longer counts.
* of an IP address at a listener (`connection_creation_rate`, by address or for every other one): a connection
  above it is not admitted. It does not count then, in none of the rates, and its socket is to be kept for as
  long as it would have had to wait, so that it cannot try again at once.

With the default window a limit of 5 per second lets 50 pass at once from cold:

>>> quotas = ConnectionQuotas(total_rate=5)
>>> [quotas.arrive(None, now_ms=0) for _ in range(51)][-2:]
[0, 200]

Kafka's `ConnectionQuotas` is the reference. There a broker has the IP rates, whatever the listener; here each
listener stands for a broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from quotas.client_quotas import ClientQuotas
from quotas.limiters.rate import Rate
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.limiters.throttle import throttle_ms
from quotas.table.entities import Tags
from quotas.table.quota_table import QuotaKey, QuotaTable

KEY: Final = QuotaKey.CONNECTION_CREATION_RATE
NOBODY: Final = Tags("", "")


class ConnectionBudget:
    """Connections per second of those who share `tags`, against their limit: a `Limiter`."""

    __slots__ = (
        "_lifetime_ms",
        "_rate",
        "_reported",
        "_throttle_ms_max",
        "charged",
        "charged_ms",
        "limit",
        "tags",
        "throttle_ms_total",
        "throttled",
    )

    def __init__(self, tags: Tags, limit: float, now_ms: int, *, num_samples: int, window_s: int) -> None:
        """Begin at `now_ms` with no connection."""
        self.tags = tags
        self.limit = limit
        self.charged: float = 0.0
        """All connections, but for those that were taken back."""
        self.charged_ms = now_ms
        self.throttled = 0
        """How many came above the limit."""
        self.throttle_ms_total = 0
        self._reported: float = 0.0
        """What of `charged` `delta` has told."""
        self._rate = Rate(num_samples, 1000 * window_s)
        self._throttle_ms_max = 1000 * window_s
        self._lifetime_ms = 1000 * num_samples * window_s

    def set_limit(self, limit: float) -> None:
        """Replace the limit; the connections that were made count against the new one."""
        self.limit = limit

    def charge(self, units: float, now_ms: int) -> int:
        """Count so many connections; return how many ms they must wait, 0 if within the limit."""
        self.charged += units
        self.charged_ms = now_ms
        rate = self._rate.add(units, now_ms)
        wait_ms = throttle_ms(rate, self.limit, self._rate.window_ms(now_ms), self._throttle_ms_max)
        if wait_ms:
            self.throttled += 1
            self.throttle_ms_total += wait_ms
        return wait_ms

    def take_back(self, now_ms: int) -> None:
        """A connection that was counted was not admitted."""
        self.charged -= 1
        self._rate.add(-1, now_ms)

    def delta(self) -> float:
        """Return the connections that were counted here since this was last asked."""
        charged, self._reported = self.charged - self._reported, self.charged
        return charged

    def absorb(self, units: float, now_ms: int) -> None:
        """Record connections that were counted elsewhere."""
        self.charged_ms = now_ms
        self._rate.add(units, now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether no connection counts any more."""
        return self.charged_ms + self._lifetime_ms <= now_ms

    def rate(self, now_ms: int) -> float:
        """Connections per second now. Changes nothing: for metrics."""
        return self._rate.peek(now_ms)


class ConnectionQuotas:
    """The connection rates of one process, and of its listeners: each a node id, None for bootstrap."""

    def __init__(
        self,
        table: QuotaTable | None = None,
        *,
        total_rate: int = 0,
        listener_rate: int = 0,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
    ) -> None:
        """Rates are connections per second, 0 for no limit; those of IP addresses are the table's."""
        self._num_samples = num_samples
        self._window_s = window_s
        self._listener_rate = listener_rate
        self._total = self._made(NOBODY, total_rate, 0) if total_rate else None
        self._listeners: dict[int | None, ConnectionBudget] = {}
        self._ips: dict[int | None, ClientQuotas[ConnectionBudget]] = {}
        self._table = table or QuotaTable()

    def update(self, table: QuotaTable) -> None:
        """Use the IP rates of `table` from now on."""
        self._table = table
        for quotas in self._ips.values():
            quotas.update(self._table)

    def arrive(self, listener: int | None, now_ms: int) -> int:
        """A connection is there: count it; return how many ms it is to be accepted late."""
        wait_ms = self._total.charge(1, now_ms) if self._total is not None else 0
        budget = self._listener(listener, now_ms)
        return max(wait_ms, budget.charge(1, now_ms)) if budget is not None else wait_ms

    def admit(self, listener: int | None, ip: str, now_ms: int) -> int:
        """An address wants a connection: 0 if it may, else for how many ms its socket is to be kept unread,
        and then closed. It does not count then.
        """
        quotas = self._of_listener(listener)
        if quotas.shadow is not None:
            _charge(quotas.shadow.of_address(ip, now_ms), now_ms)
        budget = quotas.of_address(ip, now_ms)
        wait_ms = budget.charge(1, now_ms) if budget is not None else 0
        if budget is None or not wait_ms:
            return 0
        for counted in (budget, self._total, self._listener(listener, now_ms)):
            if counted is not None:
                counted.take_back(now_ms)
        return wait_ms

    def ips(self, listener: int | None) -> ClientQuotas[ConnectionBudget]:
        """The budgets of the addresses at a listener, each with the address in its `tags`."""
        return self._of_listener(listener)

    def shadows(self) -> Iterator[ClientQuotas[ConnectionBudget]]:
        """The budgets of shadow entries, which turn nobody away: `throttled` is who would have been."""
        return (quotas.shadow for quotas in self._ips.values() if quotas.shadow is not None)

    def listeners(self) -> Iterator[tuple[int | None, ConnectionBudget]]:
        """The budgets of listeners that have a limit and were used."""
        return iter(self._listeners.items())

    @property
    def total(self) -> ConnectionBudget | None:
        """The budget of the whole process, if that has a limit."""
        return self._total

    @property
    def addresses(self) -> int:
        """How many budgets of addresses are remembered."""
        return sum(map(len, self._ips.values()))

    def expire(self, now_ms: int) -> Iterator[int]:
        """Forget addresses that have not come for an hour, in steps: as `ClientQuotas.expire`."""
        for quotas in list(self._ips.values()):
            yield from quotas.expire(now_ms)

    def _listener(self, listener: int | None, now_ms: int) -> ConnectionBudget | None:
        if not self._listener_rate:
            return None
        budget = self._listeners.get(listener)
        if budget is None:
            budget = self._listeners[listener] = self._made(NOBODY, self._listener_rate, now_ms)
        return budget

    def _of_listener(self, listener: int | None) -> ClientQuotas[ConnectionBudget]:
        quotas = self._ips.get(listener)
        if quotas is None:
            quotas = self._ips[listener] = ClientQuotas(KEY, self._made)
            quotas.shadow = ClientQuotas(KEY, self._made, is_shadow=True)
            quotas.update(self._table)
        return quotas

    def _made(self, tags: Tags, limit: float, now_ms: int) -> ConnectionBudget:
        return ConnectionBudget(tags, limit, now_ms, num_samples=self._num_samples, window_s=self._window_s)


class ConnectionCounts:
    """How many connections each IP address has now, and may have (`max.connections.per.ip`)."""

    def __init__(self, most: int = 0, overrides: Mapping[str, int] | None = None) -> None:
        """`most` is 0 for no limit; `overrides` are other numbers for some addresses, 0 for none at all."""
        self._most = most
        self._overrides = dict(overrides or {})
        self._open: Counter[str] = Counter()

    def open(self, ip: str) -> bool:
        """One more connection of this address; False if that is one too many, and it does not count then."""
        most = self._overrides.get(ip, self._most or None)
        if most is not None and self._open[ip] >= most:
            return False
        self._open[ip] += 1
        return True

    def close(self, ip: str) -> None:
        """A connection of this address has ended."""
        self._open[ip] -= 1
        if not self._open[ip]:
            del self._open[ip]

    def of(self, ip: str) -> int:
        """How many connections it has."""
        return self._open[ip]


def _charge(budget: ConnectionBudget | None, now_ms: int) -> None:
    """Count a connection that is let in, whatever the budget says; above the limit as if it were not."""
    if budget is not None and budget.charge(1, now_ms):
        budget.take_back(now_ms)
