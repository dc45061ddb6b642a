"""BrokerQuotas: all quotas in force at one broker, and the look-up of one client's limiters there."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from weir.quotas.client_quotas import ClientQuotas, mutation_rates
from weir.quotas.cluster_quotas import ClusterQuotas, SampledQuotas
from weir.quotas.ledger import ClientLedger
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.chain import Chain
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.request_time import US_PER_PERCENT, RequestBudget
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.mutations import MutationBudget, MutationChain, MutationLedger
from weir.quotas.table.entities import BELOW_FLOORS
from weir.quotas.table.groups import NO_GROUPS
from weir.quotas.table.quota_table import QuotaKey
from weir.quotas.topics import TopicQuotas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weir.quotas.table.quota_table import QuotaTable

A = TypeVar("A", bound=Limiter)
B = TypeVar("B", bound=Budget)


class BrokerQuotas(SampledQuotas):
    """All quotas of one broker. Change the quotas only through this object, because otherwise `generation`
    does not grow and connections keep outdated limiters.
    """

    __slots__ = (
        "_all",
        "_changes",
        "_cluster",
        "_counts_topics",
        "_grouped",
        "_groups",
        "_in_shadow",
        "_reads_old",
        "_topics",
        "forwarded_us",
        "generation",
        "mutations",
        "node_id",
        "percent_per_us",
        "timed",
        "topics",
        "unnamed",
    )

    def __init__(
        self,
        num_samples: int,
        window_s: int,
        mutations: ClientQuotas[MutationBudget],
        unnamed: str,
        request_time_scale: float,
        cluster: ClusterQuotas,
        node_id: int | None,
    ) -> None:
        """Begin without limits. All brokers of a cluster share the same `mutations` and `cluster`.

        `unnamed`: client-id used for clients without a client-id. `request_time_scale`: factor by which
        requests cost this broker more than the cost model says.
        """
        super().__init__(num_samples, window_s)
        self.mutations = mutations
        self.node_id = node_id
        """Node id of the broker; None if unknown."""
        self.percent_per_us = request_time_scale / US_PER_PERCENT
        """Request time (percent-seconds of a thread) charged per microsecond of the cost model."""
        self.timed = False
        """True if the table has request-time quotas, enforced or shadow."""
        self.forwarded_us = 0
        """Time (µs) at which a request was last forwarded to this broker; not kept up to date while `timed`
        is False.
        """
        self.unnamed = unnamed
        self._topics = TopicQuotas(num_samples, window_s, cluster=cluster.topics)
        self.topics: TopicQuotas | None = None
        """Per-topic rates; None while no topic has a rate."""
        self._reads_old = False
        """True if the table has rates of old reads, enforced or shadow."""
        self._all: tuple[ClientQuotas[Limiter], ...] = (*self.sampled, mutations)
        self._cluster = cluster
        for own, shared in zip(self.sampled, cluster.sampled, strict=True):
            own.share(shared)
        cluster.on_change.append(self._note_generation)
        self._changes = 0
        """Number of times that the table began or ceased to have topic rates (`topics` became an object or
        None) or limits on the number of topics, or that the members of groups changed.
        """
        self._groups = NO_GROUPS
        self._grouped = False
        """True if any group has a quota, enforced or shadow."""
        self._in_shadow = False
        """True if the table has shadow entries: quotas that are counted, but not enforced."""
        self._counts_topics = False
        """True if any prefix has a limit on its topics, enforced or shadow."""
        self.generation = 0
        """A number that grows when limiters that connections have looked up here may be outdated, or when
        their former decisions may be. Connections then look their limiters up, and parse requests, again.
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
        node_id: int | None = None,
    ) -> BrokerQuotas:
        """Return the quotas of a broker without usage, with the limits of `table`.

        `num_samples` and `window_s` are Kafka's `quota.window.num` and `quota.window.size.seconds`.
        `mutations` and `cluster` are shared by the brokers of a cluster; None if this broker is alone.
        """
        quotas = cls(
            num_samples,
            window_s,
            mutation_rates() if mutations is None else mutations,
            unnamed,
            request_time_scale,
            ClusterQuotas(num_samples, window_s) if cluster is None else cluster,
            node_id,
        )
        quotas.use(table)
        return quotas

    def ledger(self, user: str, client_id: str, now_ms: int) -> ClientLedger:
        """Return the limiters of a client as a `ClientLedger`; missing limiters are created. `user` is the
        principal's name without type. The caller must call this again when `generation` has changed.
        """
        name = client_id or self.unnamed
        groups = self._groups.chain(user, name) if self._grouped else ()
        ledger = ClientLedger(
            _limiter(self.produce, self.produce_floor, user, name, groups, now_ms),
            _limiter(self.fetch, self.fetch_floor, user, name, groups, now_ms),
            _limiter(self.request, None, user, name, groups, now_ms) if self.timed else None,
            shadow=self._shadow_ledger(user, name, groups, now_ms) if self._in_shadow else None,
            topics=self.topics,
            old_reads=_limiter(self.old_reads, None, user, name, groups, now_ms) if self._reads_old else None,
            percent_per_us=self.percent_per_us,
        )
        self._note_generation()  # creating a limiter may have removed idle limiters, to make room
        self._cluster.note()
        return ledger

    def _shadow_ledger(self, user: str, client_id: str, groups: tuple[str, ...], now_ms: int) -> ClientLedger:
        return ClientLedger(
            _shadow_limiter(self.produce, self.produce_floor, user, client_id, groups, now_ms),
            _shadow_limiter(self.fetch, self.fetch_floor, user, client_id, groups, now_ms),
            _shadow_limiter(self.request, None, user, client_id, groups, now_ms),
            old_reads=_shadow_limiter(self.old_reads, None, user, client_id, groups, now_ms),
        )

    def request_budgets(self, user: str, client_id: str) -> tuple[RequestBudget | None, RequestBudget | None]:
        """Return (enforced, shadow) request-time budgets of a client, each None if it does not exist yet. A
        shadow budget counts the usage and throttles no client. Unlike `ledger`, this method creates no
        budget.
        """
        name = client_id or self.unnamed
        shadow = self.request.shadow
        return self.request.peek(user, name), None if shadow is None else shadow.peek(user, name)

    def mutation_ledger(self, user: str, client_id: str, now_ms: int) -> MutationLedger | None:
        """Return the mutation budgets of a client; None if neither an enforced nor a shadow mutation quota
        applies. Call this for each request, because `generation` does not tell when the result is outdated.
        """
        name = client_id or self.unnamed
        groups = self._groups.chain(user, name) if self._grouped else ()
        budget = _mutation_limiter(self.mutations, user, name, groups, now_ms)
        shadows = self.mutations.shadow if self._in_shadow else None
        shadow = None if shadows is None else _mutation_limiter(shadows, user, name, groups, now_ms)
        return None if budget is None and shadow is None else MutationLedger(budget, shadow)

    def use(self, table: QuotaTable) -> None:
        """Make later look-ups of limits use `table`. The caller must run `refresh` after this, which gives
        the new limits to existing limiters.
        """
        self._in_shadow = bool(table.shadow)
        self.timed = table.has(QuotaKey.REQUEST_PERCENTAGE)
        self._reads_old = table.has(QuotaKey.OLD_READ_BYTE_RATE)
        # For the first broker of a cluster; the shared quotas ignore the calls of the others.
        self._cluster.use(table)
        for quotas in self._all:
            quotas.use(table)
        if table.groups is not self._groups:  # comparing 100,000 members takes 5 ms, looking up again 20 us
            self._changes += 1
        self._groups = table.groups
        self._grouped = any(quotas.groups for quotas in self._all)
        self._topics.update(table)
        had_topics, self.topics = self.topics is not None, self._topics or None
        self._changes += had_topics != (self.topics is not None)
        counted_topics = self._counts_topics
        self._counts_topics = table.has(QuotaKey.TOPICS_MAX) or table.has(QuotaKey.PARTITIONS_MAX)
        self._changes += counted_topics != self._counts_topics  # Metadata may create topics: parse it again
        self._note_generation()

    def refresh(self) -> Iterator[None]:
        """Give all existing limiters the limits of the table that was last passed to `use`; yield after each
        step of about a millisecond.
        """
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
        self.generation = self._changes + self._cluster.generation
        for quotas in self._all:
            shadow = quotas.shadow
            self.generation += quotas.generation + (0 if shadow is None else shadow.generation)


def _limiter(
    quotas: ClientQuotas[B],
    floors: ClientQuotas[Budget] | None,
    user: str,
    client_id: str,
    groups: tuple[str, ...],
    now_ms: int,
) -> B | Chain | None:
    """Return the enforced limiter of a client: a chain if its groups have one, too."""
    own = quotas.budget(user, client_id, now_ms)
    its = _of_groups(quotas, floors, groups, now_ms)
    if not its:
        return own
    return Chain(own, its, None if floors is None else floors.budget(user, client_id, now_ms))


def _shadow_limiter(
    enforced: ClientQuotas[B],
    floors: ClientQuotas[Budget] | None,
    user: str,
    client_id: str,
    groups: tuple[str, ...],
    now_ms: int,
) -> B | Chain | None:
    """Return the shadow limiter of a client, like `_limiter`. A floor is one entry more that may be in
    shadow; an enforced one counts for groups in shadow, too.
    """
    quotas = enforced.shadow
    if quotas is None:
        return None
    own = quotas.budget(user, client_id, now_ms)
    its = _of_groups(quotas, floors, groups, now_ms)
    if not its:
        return own
    if floors is None:
        return Chain(own, its)
    floor = None if floors.shadow is None else floors.shadow.budget(user, client_id, now_ms)
    if floor is not None:
        return Chain(own, its, floor)
    is_charged = any(enforced.of_group(group, now_ms) is not None for group in groups)
    return Chain(own, its, floors.budget(user, client_id, now_ms), charges_floor=not is_charged)


def _of_groups(
    quotas: ClientQuotas[B], floors: ClientQuotas[Budget] | None, groups: tuple[str, ...], now_ms: int
) -> tuple[Budget, ...]:
    found: list[Budget] = []
    for group in groups:
        budget = quotas.of_group(group, now_ms)
        if budget is not None:
            has_floors = floors is not None and floors.has_limits
            budget.floors = quotas.of_group(group, now_ms, BELOW_FLOORS) if has_floors else None
            found.append(budget)
    return tuple(found)


def _mutation_limiter(
    quotas: ClientQuotas[MutationBudget], user: str, client_id: str, groups: tuple[str, ...], now_ms: int
) -> MutationBudget | MutationChain | None:
    own = quotas.budget(user, client_id, now_ms)
    its = [budget for group in groups if (budget := quotas.of_group(group, now_ms)) is not None]
    if not its:
        return own
    return MutationChain((*([] if own is None else [own]), *its))
