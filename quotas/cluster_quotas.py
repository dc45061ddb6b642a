"""`SampledQuotas`: the quotas of clients whose use is sampled. `ClusterQuotas`: those of entries with
`scope = "cluster"`, which all brokers of a cluster share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.quotas.client_quotas import ClientQuotas, byte_floors, byte_rates, request_times
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.table.options import Scope
from weir.quotas.table.quota_kind import BYTE_RATES, FLOORS, KINDS, QuotaKey
from weir.quotas.table.quota_table import QuotaTable
from weir.quotas.topics import TopicQuotas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weir.quotas.table.entities import Tags


class SampledQuotas:
    """One object for each kind of quota of clients, except for mutations, which is limited only in the whole
    cluster. The order is that of `quota_kind.KINDS`.
    """

    __slots__ = ("fetch", "fetch_floor", "old_reads", "produce", "produce_floor", "request")

    def __init__(self, num_samples: int, window_s: int) -> None:
        """Begin without limits. `num_samples` and `window_s` are Kafka's `quota.window.num` and
        `quota.window.size.seconds`.
        """
        produce, fetch = BYTE_RATES
        self.produce: ClientQuotas[Budget] = byte_rates(produce, num_samples, window_s)
        self.fetch: ClientQuotas[Budget] = byte_rates(fetch, num_samples, window_s)
        self.request: ClientQuotas[RequestBudget] = request_times(num_samples, window_s)
        self.produce_floor = byte_floors(FLOORS[produce], num_samples, window_s)
        self.fetch_floor = byte_floors(FLOORS[fetch], num_samples, window_s)
        self.old_reads: ClientQuotas[Budget] = byte_rates(QuotaKey.OLD_READ_BYTE_RATE, num_samples, window_s)

    @property
    def sampled(self) -> tuple[ClientQuotas[Budget], ...]:
        """All of them, in order."""
        return self.produce, self.fetch, self.request, self.produce_floor, self.fetch_floor, self.old_reads

    @property
    def limits(self) -> tuple[ClientQuotas[Budget], ...]:
        """All but the floors, in order."""
        return tuple([quotas for quotas in self.sampled if KINDS[quotas.key].floor_of is None])


class ClusterQuotas(SampledQuotas):
    """Limits and budgets of the byte rates, request time and topic rates that all brokers of one cluster
    share. The brokers' `BrokerQuotas` look these budgets up here.
    """

    __slots__ = ("_noted", "on_change", "topics")

    def __init__(self, num_samples: int = NUM_SAMPLES_DEFAULT, window_s: int = WINDOW_S_DEFAULT) -> None:
        """Begin without limits. `num_samples` and `window_s` are Kafka's `quota.window.num` and
        `quota.window.size.seconds`.
        """
        super().__init__(num_samples, window_s)
        self.topics = TopicQuotas(num_samples, window_s, scope=Scope.CLUSTER)
        self.on_change: list[Callable[[], None]] = []
        """Functions to call when brokers must look up their budgets again, because limits changed or budgets
        were removed.
        """
        self._noted = 0

    def use(self, table: QuotaTable) -> None:
        """Make later look-ups of limits use `table`. Call this before `BrokerQuotas.use`, which copies topic
        rates from this object. The caller must then run `refresh`, which gives the new limits to existing
        limiters.
        """
        for quotas in self.sampled:
            quotas.use(table)
        self.topics.update(table)

    def refresh(self) -> Iterator[None]:
        """Give all existing limiters the limits of the table that was last passed to `use`; yield after each
        step of about a millisecond.
        """
        for quotas in self.sampled:
            yield from quotas.refresh()

    def expire(self, now_ms: int) -> Iterator[int]:
        """Remove limiters that were not charged for an hour; yield after each step (about a millisecond) the
        number of limiters removed.
        """
        for quotas in self.sampled:
            for forgotten in quotas.expire(now_ms):
                self.note()
                yield forgotten
        self.note()

    @property
    def generation(self) -> int:
        """A number that grows when limiters that brokers have looked up in this object may be outdated."""
        return sum(
            quotas.generation + (quotas.shadow.generation if quotas.shadow is not None else 0)
            for quotas in self.sampled
        )

    def request_budgets(self, tags: Tags) -> tuple[RequestBudget | None, RequestBudget | None]:
        """Return (enforced, shadow) request-time budgets with these tags, each None if it does not exist. A
        shadow budget counts the usage and throttles no client.
        """
        shadow = self.request.shadow
        return self.request.known(tags), None if shadow is None else shadow.known(tags)

    def note(self) -> None:
        """Call the functions in `on_change` if budgets were removed or limits changed since the last call."""
        generation = self.generation
        if generation != self._noted:
            self._noted = generation
            for call in self.on_change:
                call()
