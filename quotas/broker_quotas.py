"""All quotas that hold at one broker, and what one of its clients draws on."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from quotas.client_quotas import ClientQuotas, byte_rates, mutation_rates, request_times
from quotas.cluster_quotas import ClusterQuotas
from quotas.ledger import ClientLedger
from quotas.limiters.budgets import Budget
from quotas.limiters.limiter import Limiter
from quotas.limiters.request_time import US_PER_PERCENT, RequestBudget
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.mutations import MutationBudget, MutationLedger
from quotas.table.quota_table import QuotaKey
from quotas.topics import TopicQuotas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quotas.table.quota_table import QuotaTable

A = TypeVar("A", bound=Limiter)


class BrokerQuotas:
    """All client quotas of one broker. Change them through this object, so that `generation` knows."""

    __slots__ = (
        "_all",
        "_cluster",
        "_in_shadow",
        "_topic_changes",
        "_topics",
        "fetch",
        "forwarded_us",
        "generation",
        "mutations",
        "percent_per_us",
        "produce",
        "request",
        "timed",
        "topics",
        "unnamed",
    )

    def __init__(
        self,
        produce: ClientQuotas[Budget],
        fetch: ClientQuotas[Budget],
        mutations: ClientQuotas[MutationBudget],
        request: ClientQuotas[RequestBudget],
        unnamed: str = "",
        topics: TopicQuotas | None = None,
        request_time_scale: float = 1.0,
        cluster: ClusterQuotas | None = None,
    ) -> None:
        """Bundle the managers of this broker's quotas; brokers of one cluster have the same `mutations`, and
        the same `cluster`. Without a cluster, entries with cluster scope hold at this broker.

        A client without a client-id is treated as if it were called `unnamed`. Requests cost this broker
        `request_time_scale` times what the model says.
        """
        self.produce = produce
        self.fetch = fetch
        self.mutations = mutations
        self.request = request
        self.percent_per_us = request_time_scale / US_PER_PERCENT
        """What a microsecond of the cost model is charged with."""
        self.timed = False
        """Whether the table has quotas on request time, enforced or in shadow."""
        self.forwarded_us = 0
        """When a request was last forwarded to this broker; noted while `timed`."""
        self.unnamed = unnamed
        self._topics = TopicQuotas() if topics is None else topics
        self.topics: TopicQuotas | None = None
        """The rates of topics; None while none has one."""
        self._all: tuple[ClientQuotas[Limiter], ...] = (produce, fetch, mutations, request)
        self._cluster = cluster
        if cluster is not None:
            produce.share(cluster.produce)
            fetch.share(cluster.fetch)
            request.share(cluster.request)
            cluster.on_change.append(self._note_generation)
        self._topic_changes = 0
        """How often the table got its first rate of a topic, or lost its last."""
        self._in_shadow = False
        """Whether the table has shadow entries."""
        self.generation = 0
        """Grows with the generation of any of them: one comparison tells whether to look up anew."""

    @classmethod
    def create(
        cls,
        table: QuotaTable,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        mutations: ClientQuotas[MutationBudget] | None = None,
        unnamed: str = "",
        request_time_scale: float = 1.0,
        cluster: ClusterQuotas | None = None,
    ) -> BrokerQuotas:
        """The quotas of a broker with nothing used yet, under the limits of `table`.

        `mutations` and `cluster` are the cluster's; by default those of a cluster of this one broker.
        """
        cluster = ClusterQuotas(num_samples, window_s) if cluster is None else cluster
        quotas = cls(
            byte_rates(QuotaKey.PRODUCER_BYTE_RATE, num_samples, window_s),
            byte_rates(QuotaKey.CONSUMER_BYTE_RATE, num_samples, window_s),
            mutation_rates() if mutations is None else mutations,
            request_times(num_samples, window_s),
            unnamed,
            TopicQuotas(num_samples, window_s, cluster=cluster.topics),
            request_time_scale,
            cluster,
        )
        quotas.update(table)
        return quotas

    def ledger(self, user: str, client_id: str, now_ms: int) -> ClientLedger:
        """What a client draws on, as `ClientQuotas.budget`; keep it while `generation` stays the same."""
        name = client_id or self.unnamed
        ledger = ClientLedger(
            self.produce.budget(user, name, now_ms),
            self.fetch.budget(user, name, now_ms),
            self.request.budget(user, name, now_ms) if self.timed else None,
            shadow=self._shadow_ledger(user, name, now_ms) if self._in_shadow else None,
            topics=self.topics,
            percent_per_us=self.percent_per_us,
        )
        self._note_generation()  # to make room for one limiter, others may have been forgotten
        if self._cluster is not None:
            self._cluster.note()
        return ledger

    def _shadow_ledger(self, user: str, client_id: str, now_ms: int) -> ClientLedger:
        return ClientLedger(
            _in_shadow(self.produce, user, client_id, now_ms),
            _in_shadow(self.fetch, user, client_id, now_ms),
            _in_shadow(self.request, user, client_id, now_ms),
        )

    def request_budgets(self, user: str, client_id: str) -> tuple[RequestBudget | None, RequestBudget | None]:
        """The request time that a client draws on, enforced and in shadow, as far as any was charged yet:
        looking makes no budget.
        """
        name = client_id or self.unnamed
        shadow = self.request.shadow
        return self.request.peek(user, name), None if shadow is None else shadow.peek(user, name)

    def mutation_ledger(self, user: str, client_id: str, now_ms: int) -> MutationLedger | None:
        """What a client's partition mutations draw on; None if nothing. Ask anew for each request."""
        name = client_id or self.unnamed
        budget = self.mutations.budget(user, name, now_ms)
        shadow = _in_shadow(self.mutations, user, name, now_ms) if self._in_shadow else None
        return None if budget is None and shadow is None else MutationLedger(budget, shadow)

    def use(self, table: QuotaTable) -> None:
        """Look limits up in `table` from now on; then `refresh`."""
        self._in_shadow = bool(table.shadow)
        self.timed = table.has(QuotaKey.REQUEST_PERCENTAGE)
        if self._cluster is not None:  # what brokers share does it for the first of them
            self._cluster.use(table)
        for quotas in self._all:
            quotas.use(table)
        self._topics.update(table)
        had_topics, self.topics = self.topics is not None, self._topics or None
        self._topic_changes += had_topics != (self.topics is not None)
        self._note_generation()

    def refresh(self) -> Iterator[None]:
        """Give all limiters the limits in force, in steps: as `ClientQuotas.refresh`."""
        if self._cluster is not None:
            yield from self._cluster.refresh()
        for quotas in self._all:
            yield from quotas.refresh()

    def update(self, table: QuotaTable) -> None:
        """Use the limits of `table` from now on: all steps at once."""
        self.use(table)
        for _step in self.refresh():
            pass

    def expire(self, now_ms: int) -> Iterator[int]:
        """Forget the budgets that were not charged for an hour, in steps: as `ClientQuotas.expire`."""
        for quotas in self._all:
            for forgotten in quotas.expire(now_ms):
                self._note_generation()
                yield forgotten
        self._note_generation()  # others share some of them, and may have changed these

    def _note_generation(self) -> None:
        self.generation = self._topic_changes + sum(
            quotas.generation + (quotas.shadow.generation if quotas.shadow is not None else 0)
            for quotas in self._all
        )
        if self._cluster is not None:
            self.generation += self._cluster.generation


def _in_shadow(quotas: ClientQuotas[A], user: str, client_id: str, now_ms: int) -> A | None:
    return None if quotas.shadow is None else quotas.shadow.budget(user, client_id, now_ms)
