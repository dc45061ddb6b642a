"""BrokerQuotas: all quotas in force at one broker, and the look-up of one client's limiters there."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from weir.quotas.client_quotas import ClientQuotas, byte_rates, mutation_rates, request_times
from weir.quotas.cluster_quotas import ClusterQuotas
from weir.quotas.ledger import ClientLedger
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.request_time import US_PER_PERCENT, RequestBudget
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.mutations import MutationBudget, MutationLedger
from weir.quotas.table.quota_table import QuotaKey
from weir.quotas.topics import TopicQuotas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weir.quotas.table.quota_table import QuotaTable

A = TypeVar("A", bound=Limiter)


class BrokerQuotas:
    """All quotas of one broker. Change the quotas only through this object, because otherwise `generation`
    does not grow and connections keep outdated limiters.
    """

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
        """Bundle the quotas of one broker. All brokers of a cluster share the same `mutations` and `cluster`.
        If `cluster` is None, entries with cluster scope apply to this broker alone.

        `unnamed`: client-id used for clients without a client-id. `request_time_scale`: factor by which
        requests cost this broker more than the cost model says. `topics`: None for no topic rates.
        """
        self.produce = produce
        self.fetch = fetch
        self.mutations = mutations
        self.request = request
        self.percent_per_us = request_time_scale / US_PER_PERCENT
        """Request time (percent-seconds of a thread) charged per microsecond of the cost model."""
        self.timed = False
        """True if the table has request-time quotas, enforced or shadow."""
        self.forwarded_us = 0
        """Time (µs) at which a request was last forwarded to this broker; not kept up to date while `timed`
        is False.
        """
        self.unnamed = unnamed
        self._topics = TopicQuotas() if topics is None else topics
        self.topics: TopicQuotas | None = None
        """Per-topic rates; None while no topic has a rate."""
        self._all: tuple[ClientQuotas[Limiter], ...] = (produce, fetch, mutations, request)
        self._cluster = cluster
        if cluster is not None:
            produce.share(cluster.produce)
            fetch.share(cluster.fetch)
            request.share(cluster.request)
            cluster.on_change.append(self._note_generation)
        self._topic_changes = 0
        """Number of times that the table began or ceased to have topic rates (`topics` became an object or
        None).
        """
        self._in_shadow = False
        """True if the table has shadow entries."""
        self.generation = 0
        """A number that grows when limiters that connections have looked up here may be outdated. Connections
        then look their limiters up again.
        """

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
        """Return the quotas of a broker without usage, with the limits of `table`.

        `num_samples` and `window_s` are Kafka's `quota.window.num` and `quota.window.size.seconds`.
        `mutations` and `cluster` are shared by the brokers of a cluster; None if this broker is alone.
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
        quotas.use(table)
        return quotas

    def ledger(self, user: str, client_id: str, now_ms: int) -> ClientLedger:
        """Return the limiters of a client as a `ClientLedger`; missing limiters are created. `user` is the
        principal's name without type. The caller must call this again when `generation` has changed.
        """
        name = client_id or self.unnamed
        ledger = ClientLedger(
            self.produce.budget(user, name, now_ms),
            self.fetch.budget(user, name, now_ms),
            self.request.budget(user, name, now_ms) if self.timed else None,
            shadow=self._shadow_ledger(user, name, now_ms) if self._in_shadow else None,
            topics=self.topics,
            percent_per_us=self.percent_per_us,
        )
        self._note_generation()  # creating a limiter may have removed idle limiters, to make room
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
        """Return (enforced, shadow) request-time budgets of a client, each None if it does not exist yet.
        Unlike `ledger`, creates no budget.
        """
        name = client_id or self.unnamed
        shadow = self.request.shadow
        return self.request.peek(user, name), None if shadow is None else shadow.peek(user, name)

    def mutation_ledger(self, user: str, client_id: str, now_ms: int) -> MutationLedger | None:
        """Return the mutation budgets of a client; None if neither an enforced nor a shadow mutation quota
        applies. Call this for each request, because `generation` does not tell when the result is outdated.
        """
        name = client_id or self.unnamed
        budget = self.mutations.budget(user, name, now_ms)
        shadow = _in_shadow(self.mutations, user, name, now_ms) if self._in_shadow else None
        return None if budget is None and shadow is None else MutationLedger(budget, shadow)

    def use(self, table: QuotaTable) -> None:
        """Make later look-ups of limits use `table`. The caller must run `refresh` after this, which gives
        the new limits to existing limiters.
        """
        self._in_shadow = bool(table.shadow)
        self.timed = table.has(QuotaKey.REQUEST_PERCENTAGE)
        # For the first broker of a cluster; the shared quotas ignore the calls of the others.
        if self._cluster is not None:
            self._cluster.use(table)
        for quotas in self._all:
            quotas.use(table)
        self._topics.update(table)
        had_topics, self.topics = self.topics is not None, self._topics or None
        self._topic_changes += had_topics != (self.topics is not None)
        self._note_generation()

    def refresh(self) -> Iterator[None]:
        """Give all existing limiters the limits in force; yield after each step of about a millisecond."""
        if self._cluster is not None:
            yield from self._cluster.refresh()
        for quotas in self._all:
            yield from quotas.refresh()

    def expire(self, now_ms: int) -> Iterator[int]:
        """Remove limiters that were not charged for an hour; yield after each step (about a millisecond) the
        number of limiters removed.
        """
        for quotas in self._all:
            for forgotten in quotas.expire(now_ms):
                self._note_generation()
                yield forgotten
        self._note_generation()  # other brokers of the cluster may have removed shared limiters

    def _note_generation(self) -> None:
        self.generation = self._topic_changes + sum(
            quotas.generation + (quotas.shadow.generation if quotas.shadow is not None else 0)
            for quotas in self._all
        )
        if self._cluster is not None:
            self.generation += self._cluster.generation


def _in_shadow(quotas: ClientQuotas[A], user: str, client_id: str, now_ms: int) -> A | None:
    return None if quotas.shadow is None else quotas.shadow.budget(user, client_id, now_ms)
