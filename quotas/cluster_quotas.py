"""ClusterQuotas: the budgets that all brokers of one cluster share, of entries with `scope = "cluster"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotas.client_quotas import ClientQuotas, byte_rates, request_times
from quotas.limiters.budgets import Budget
from quotas.limiters.request_time import RequestBudget
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.table.options import Scope
from quotas.table.quota_table import QuotaKey, QuotaTable
from quotas.topics import TopicQuotas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from quotas.limiters.limiter import Limiter
    from quotas.table.entities import Tags


class ClusterQuotas:
    """Byte rates, request time and rates of topics, each of the whole cluster; `BrokerQuotas` look here."""

    __slots__ = ("_noted", "fetch", "on_change", "produce", "request", "topics")

    def __init__(self, num_samples: int = NUM_SAMPLES_DEFAULT, window_s: int = WINDOW_S_DEFAULT) -> None:
        """Begin without any. The numbers are `quota.window.num` and `quota.window.size.seconds`."""
        self.produce: ClientQuotas[Budget] = byte_rates(QuotaKey.PRODUCER_BYTE_RATE, num_samples, window_s)
        self.fetch: ClientQuotas[Budget] = byte_rates(QuotaKey.CONSUMER_BYTE_RATE, num_samples, window_s)
        self.request: ClientQuotas[RequestBudget] = request_times(num_samples, window_s)
        self.topics = TopicQuotas(num_samples, window_s, scope=Scope.CLUSTER)
        self.on_change: list[Callable[[], None]] = []
        """Called when budgets that brokers have looked up may no longer be the right ones."""
        self._noted = 0

    @property
    def all(self) -> tuple[ClientQuotas[Limiter], ...]:
        """The quotas of clients."""
        return self.produce, self.fetch, self.request

    def use(self, table: QuotaTable) -> None:
        """Look limits up in `table` from now on, before the brokers do; then `refresh`."""
        for quotas in self.all:
            quotas.use(table)
        self.topics.update(table)

    def refresh(self) -> Iterator[None]:
        """Give all limiters the limits in force, in steps: as `ClientQuotas.refresh`."""
        for quotas in self.all:
            yield from quotas.refresh()

    def update(self, table: QuotaTable) -> None:
        """Use the limits of `table` from now on, before the brokers do: all steps at once."""
        self.use(table)
        for _step in self.refresh():
            pass

    def expire(self, now_ms: int) -> Iterator[int]:
        """Forget the budgets that were not charged for an hour, in steps: as `ClientQuotas.expire`."""
        for quotas in self.all:
            for forgotten in quotas.expire(now_ms):
                self.note()
                yield forgotten
        self.note()

    @property
    def generation(self) -> int:
        """Grows with the generation of any of them."""
        return sum(
            quotas.generation + (quotas.shadow.generation if quotas.shadow is not None else 0)
            for quotas in self.all
        )

    def request_budgets(self, tags: Tags) -> tuple[RequestBudget | None, RequestBudget | None]:
        """The request time of those who share `tags` in the cluster, enforced and in shadow."""
        shadow = self.request.shadow
        return self.request.known(tags), None if shadow is None else shadow.known(tags)

    def note(self) -> None:
        """Tell all brokers if budgets were forgotten, to make room for one or because they were idle."""
        generation = self.generation
        if generation != self._noted:
            self._noted = generation
            for call in self.on_change:
                call()
