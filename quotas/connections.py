"""Connection quotas: limits on new connections per second (KIP-612), and on open connections.

Two rates are measured over the window of the client quotas. No wait is longer than one window.

* The rate of each listener: a connection above it is accepted late. Later connections wait in the kernel's
  backlog.
* The rate of an IP address at a listener (`connection_creation_rate` of the address, or the default): a
  connection above this rate is rejected, and counts in neither rate. The caller keeps its socket
  open for the computed wait, so that the client cannot connect again at once.

With the default window a limit of 5 per second lets 50 pass at once from cold:

>>> quotas = ConnectionQuotas(listener_rate=5)
>>> [quotas.arrive(None, now_ms=0) for _ in range(51)][-2:]
[0, 200]

Kafka's `ConnectionQuotas` is the reference. In Kafka `max.connection.creation.rate` and an IP rate apply to a
broker with all its listeners. In Weir they apply to a listener, because each listener stands for one broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from weir.quotas.client_quotas import ClientQuotas
from weir.quotas.limiters.counters import CountingLimiter
from weir.quotas.limiters.limiter import UNLIMITED
from weir.quotas.limiters.rate import Rate
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.single import NO_TAGS, SingleLimiter
from weir.quotas.limiters.throttle import throttle_ms
from weir.quotas.table.entities import Tags
from weir.quotas.table.quota_table import QuotaKey, QuotaTable

KEY: Final = QuotaKey.CONNECTION_CREATION_RATE
OF_LISTENER: Final = "connections of listener"
OF_ADDRESSES: Final = "connections of address"
CONNECTION_RATES: Final = (OF_LISTENER, OF_ADDRESSES)
"""Names of the quotas of connections (`ConnectionQuotas.named`)."""


class ConnectionBudget(CountingLimiter):
    """Limiter of the connections per second of a listener or an IP address (in `tags`)."""

    __slots__ = (
        "_lifetime_ms",
        "_rate",
        "_throttle_ms_max",
        "throttled_until_ms",
    )

    def __init__(self, tags: Tags, limit: float, now_ms: int, *, num_samples: int, window_s: int) -> None:
        """Begin at `now_ms` without connections. `limit` is in connections/s; `num_samples` and `window_s`
        are Kafka's `quota.window.num` and `quota.window.size.seconds`.
        """
        super().__init__(tags, limit, now_ms)  # `charged` leaves out the connections taken back
        self._rate = Rate(num_samples, 1000 * window_s)
        self._throttle_ms_max = 1000 * window_s
        self._lifetime_ms = 1000 * num_samples * window_s
        self.throttled_until_ms = now_ms
        """Time (ms) at which the latest wait ends; the creation time if no connection had to wait."""

    def set_limit(self, limit: float) -> None:
        """Replace the limit (connections/s). Former connections count against the new limit."""
        self.limit = limit

    def charge(self, units: float, now_ms: int) -> int:
        """Count `units` connections; return the time (ms) that they must wait, 0 if within the limit."""
        self.charged += units
        self.charged_ms = now_ms
        rate = self._rate.add(units, now_ms)
        wait_ms = throttle_ms(rate, self.limit, self._rate.window_ms(now_ms), self._throttle_ms_max)
        if wait_ms:
            self.throttled += 1
            self.throttle_ms_total += wait_ms
            self.throttled_until_ms = max(self.throttled_until_ms, now_ms + wait_ms)
        return wait_ms

    def take_back(self, now_ms: int) -> None:
        """Remove one connection from the rate and from `charged`, because Weir has rejected the connection
        after it was counted.
        """
        self.charged -= 1
        self._rate.add(-1, now_ms)

    def absorb(self, units: float, now_ms: int) -> None:
        """Add `units` connections to the rate that were not counted by `charge`, but elsewhere, such as in
        another process.
        """
        self.charged_ms = now_ms
        self._rate.add(units, now_ms)

    def watch(self, note: Callable[[Tags], None]) -> None:
        """Call `note` with the tags of this budget, now and whenever a connection begins a window."""
        self._rate.on_examined = partial(note, self.tags)
        note(self.tags)

    @property
    def restored_max(self) -> float:
        """Number of connections after which the next one waits for one window."""
        return 2 * self._rate.total_at(self.limit)

    def counting(self, now_ms: int) -> list[tuple[int, float]]:
        """Return (time in ms, connections) of the charges that still count."""
        return self._rate.counting(now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Return True if all connections are older than the window, so that removing this budget would lose
        nothing.
        """
        return self.charged_ms + self._lifetime_ms <= now_ms

    def rate(self, now_ms: int) -> float:
        """Return the current rate (connections/s), for metrics. Changes nothing."""
        return self._rate.peek(now_ms)


SingleRate: TypeAlias = SingleLimiter[ConnectionBudget]
"""The rate of a listener."""


class _Listener:
    """The quotas of one listener."""

    __slots__ = ("ips", "rate")

    def __init__(self, ips: ClientQuotas[ConnectionBudget], rate: SingleRate) -> None:
        self.ips = ips
        self.rate = rate


class ConnectionQuotas:
    """Connection rates of the listeners and of their clients' addresses.

    A listener is identified by its broker's node id, None for the bootstrap listener.
    """

    def __init__(
        self,
        table: QuotaTable | None = None,
        *,
        listener_rate: int = 0,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
    ) -> None:
        """Begin without connections. `listener_rate` (of each listener) is in connections/s, 0 for no limit.
        `table` has the rates of IP addresses.
        """
        self._num_samples = num_samples
        self._window_s = window_s
        self._listener_limit = listener_rate or UNLIMITED
        self._listeners: dict[int | None, _Listener] = {}
        self._table = table or QuotaTable()

    def limit(self, listener_rate: int) -> None:
        """Use another rate of each listener from now on; 0 for no limit. Connections of the latest window
        count against the new rate, also those from before there was a rate, as in Kafka. A connection that
        waits already waits for the time that was computed.
        """
        self._listener_limit = listener_rate or UNLIMITED
        for listener in self._listeners.values():
            if listener.rate.limiter is not None:
                listener.rate.limiter.set_limit(self._listener_limit)

    def update(self, table: QuotaTable) -> None:
        """Use the rates of IP addresses in `table` from now on. The budget of an address gets its new limit
        at the next connection from the address (`ClientQuotas.use`), so this takes the same time for any
        number of addresses.
        """
        self._table = table
        for listener in self._listeners.values():
            listener.ips.use(self._table)

    def arrive(self, listener: int | None, now_ms: int) -> int:
        """Count a new connection at a listener; return the time (ms) that the caller must wait to
        accept it.
        """
        return self._of(listener).rate.at(now_ms).charge(1, now_ms)

    def admit(self, listener: int | None, ip: str, now_ms: int) -> int:
        """Count an accepted connection from an IP address. Return 0 if the address may open this connection.
        Otherwise remove the connection from the rates of the address and the listener, and return a time
        (ms). The caller keeps the socket open for that time, without reading from it, and then closes it.
        """
        found = self._of(listener)
        quotas = found.ips
        if quotas.shadow is not None:
            _charge(quotas.shadow.of_address(ip, now_ms), now_ms)
        budget = quotas.of_address(ip, now_ms)
        wait_ms = budget.charge(1, now_ms) if budget is not None else 0
        if budget is None or not wait_ms:
            return 0
        for counted in (budget, found.rate.at(now_ms)):
            counted.take_back(now_ms)
        return wait_ms

    def ips(self, listener: int | None) -> ClientQuotas[ConnectionBudget]:
        """Return the budgets of the IP addresses at a listener, each with the address in its `tags`."""
        return self._of(listener).ips

    def named(
        self,
    ) -> Iterator[tuple[tuple[int | None, str, bool], ClientQuotas[ConnectionBudget] | SingleRate]]:
        """Yield all quotas by their names: (listener, one of `CONNECTION_RATES`, True for shadow entries)."""
        for node_id, listener in self._listeners.items():
            yield (node_id, OF_LISTENER, False), listener.rate
            yield (node_id, OF_ADDRESSES, False), listener.ips
            if listener.ips.shadow is not None:
                yield (node_id, OF_ADDRESSES, True), listener.ips.shadow

    @property
    def number(self) -> int:
        """Number of listeners with quotas."""
        return len(self._listeners)

    def of_addresses(self, *, shadow: bool) -> list[tuple[int | None, ClientQuotas[ConnectionBudget]]]:
        """Return (listener, object) for each listener with the budgets of IP addresses: those of enforced
        entries, or of shadow entries if `shadow`. Budgets of shadow entries reject no connection; their
        `throttled` counts the connections that they would reject if they were enforced.
        """
        sides = [
            (node_id, each.ips.shadow if shadow else each.ips) for node_id, each in self._listeners.items()
        ]
        return [(node_id, quotas) for node_id, quotas in sides if quotas is not None]

    def listeners(self) -> Iterator[tuple[int | None, ConnectionBudget]]:
        """Yield (listener, budget) of each listener that had connections; none if listeners have no rate."""
        for node_id, listener in self._listeners.items():
            if listener.rate.limiter is not None and listener.rate.limiter.limit != UNLIMITED:
                yield node_id, listener.rate.limiter

    @property
    def addresses(self) -> int:
        """Number of budgets of IP addresses, at all listeners."""
        return sum(len(listener.ips) for listener in self._listeners.values())

    def expire(self, now_ms: int) -> Iterator[int]:
        """Remove budgets of addresses without connections for an hour; yield after each step (about a
        millisecond) the number of budgets removed.
        """
        for listener in list(self._listeners.values()):
            yield from listener.ips.expire(now_ms)

    def _of(self, node_id: int | None) -> _Listener:
        listener = self._listeners.get(node_id)
        if listener is None:
            ips = ClientQuotas(KEY, self._made)
            ips.shadow = ClientQuotas(KEY, self._made, is_shadow=True)
            ips.use(self._table)
            rate: SingleRate = SingleLimiter(lambda now_ms: self._made(NO_TAGS, self._listener_limit, now_ms))
            listener = self._listeners[node_id] = _Listener(ips, rate)
        return listener

    def _made(self, tags: Tags, limit: float, now_ms: int) -> ConnectionBudget:
        return ConnectionBudget(tags, limit, now_ms, num_samples=self._num_samples, window_s=self._window_s)


class ConnectionCounts:
    """Counts the open connections of each IP address, and refuses connections above a maximum (Kafka's
    `max.connections.per.ip`).
    """

    def __init__(self, most: int = 0, overrides: Mapping[str, int] | None = None) -> None:
        """Begin without connections. `most`: maximum number of connections of an address, 0 for no limit.
        `overrides`: address → another maximum, 0 to reject all its connections.
        """
        self._most = most
        self._overrides = dict(overrides or {})
        self._open: Counter[str] = Counter()
        self._elsewhere: Counter[str] = Counter()
        """Number of open connections of each address at other processes that serve the same clients."""

    def limit(self, most: int, overrides: Mapping[str, int]) -> None:
        """Replace the maximum per address (`most`), and the maxima of single addresses (`overrides`), for
        connections that are opened from now on.
        """
        self._most, self._overrides = most, dict(overrides)

    def open(self, ip: str) -> bool:
        """Count a connection of this address; return False, and do not count, if the maximum is reached."""
        most = self._overrides.get(ip, self._most or None)
        if most is not None and self.of(ip) >= most:
            return False
        self._open[ip] += 1
        return True

    def close(self, ip: str) -> None:
        """Remove a connection of this address that has ended."""
        _less(self._open, ip)

    def change_elsewhere(self, opened: Iterable[str], closed: Iterable[str]) -> None:
        """Count connections that other processes have opened and closed, by their addresses. Those count for
        the maximum, too.
        """
        self._elsewhere.update(opened)
        for ip in closed:
            _less(self._elsewhere, ip)

    @property
    def elsewhere(self) -> int:
        """Number of open connections at other processes."""
        return self._elsewhere.total()

    def of(self, ip: str) -> int:
        """Return the number of open connections of this address."""
        return self._open[ip] + self._elsewhere[ip]


def _less(counter: Counter[str], ip: str) -> None:
    counter[ip] -= 1
    if counter[ip] <= 0:
        del counter[ip]


def _charge(budget: ConnectionBudget | None, now_ms: int) -> None:
    """Count a connection in a shadow budget (None for none). If the connection is above the limit, remove it
    from the rate again, because an enforced budget would reject it.
    """
    if budget is not None and budget.charge(1, now_ms):
        budget.take_back(now_ms)
