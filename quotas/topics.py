"""Per-topic rates: limits on the bytes that all clients produce to, and fetch from, a topic at one broker.

Kafka has no such quotas. A request is charged to its client's quota and to the rates of its topics; the
client waits for the longest of the throttle times. Only topics named in the table have a rate: topics have no
default entry, so the number of budgets is bounded by the number of entries.

>>> from weir.quotas.table.entities import Entity
>>> table = QuotaTable({(Entity(topic="orders"), QuotaKey.PRODUCER_BYTE_RATE): 100})
>>> topics = TopicQuotas()
>>> topics.update(table)
>>> topics.produce.charge({b"orders": 1500, b"others": 10**9}, now_ms=0)  # 1500 / 100 - 10 s
5000
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from weir.quotas.client_quotas import Sharing
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.smooth import paced
from weir.quotas.limiters.throttle import INT32_MAX
from weir.quotas.registry import SLICE
from weir.quotas.table.entities import Entity, Tags
from weir.quotas.table.options import Scope
from weir.quotas.table.quota_kind import BYTE_RATES, QuotaKey
from weir.quotas.table.quota_table import QuotaTable


class TopicRates:
    """Budgets of one byte rate by topic: enforced budgets, and shadow budgets, which only count."""

    __slots__ = (
        "_cluster",
        "_enforced",
        "_notes",
        "_num_samples",
        "_own",
        "_scope",
        "_shadow",
        "_table",
        "_window_s",
        "generation",
        "key",
        "names",
        "sharing",
    )

    def __init__(
        self,
        key: QuotaKey,
        num_samples: int,
        window_s: int,
        scope: Scope | None = None,
        cluster: TopicRates | None = None,
    ) -> None:
        """Begin without rates. `num_samples` and `window_s` are Kafka's `quota.window.num` and
        `quota.window.size.seconds`. `scope`: only entries with this scope (one budget per broker or per
        cluster) have budgets here; None for all. `cluster`: rates of the entries with cluster scope, whose
        budgets all brokers share; if given, this object has the entries with broker scope.
        """
        self.key = key
        self._scope = scope if cluster is None else Scope.BROKER
        self._cluster = cluster
        self.names: frozenset[bytes] = frozenset()
        """Names (UTF-8) of the topics that have an enforced or a shadow rate, including topics whose budgets
        the brokers of a cluster share.
        """
        self._num_samples = num_samples
        self._window_s = window_s
        self._own: tuple[dict[bytes, Budget], dict[bytes, Budget]] = ({}, {})
        """(Enforced budgets, shadow budgets), each by topic (UTF-8), without the budgets that the brokers of
        a cluster share.
        """
        self._notes: list[Callable[[Tags], None] | None] = [None, None]
        """Functions that note used (enforced budgets, shadow budgets); see `watch`."""
        self._table = QuotaTable()
        """The table in force."""
        self.generation = 0
        """A number that grows when budgets are removed."""
        self.sharing: list[Sharing | None] = [None, None]
        """Objects that share the (enforced budgets, shadow budgets) with other Weirs; None for none."""
        self._enforced: dict[bytes, Budget] = {}
        self._shadow: dict[bytes, Budget] = {}

    def update(self, table: QuotaTable, now_ms: int = 0) -> None:
        """Use the rates of `table` from now on. Usage stays, also if an entry changes between enforced and
        shadow.
        """
        before, self._table = self._table, table
        if table.pacing is before.pacing and all(
            table.topics(self.key, shadow=shadow) is before.topics(self.key, shadow=shadow)
            for shadow in (False, True)
        ):
            return  # the cluster's rates are those of the same tables
        enforced, shadow = self._own
        was = {**shadow, **enforced}
        enforced = self._made(table, enforced, was, now_ms, is_shadow=False)
        shadow = self._made(table, shadow, was, now_ms, is_shadow=True)
        self.generation += any(
            old.keys() - new.keys() for old, new in zip(self._own, (enforced, shadow), strict=True)
        )
        self._own, cluster = (enforced, shadow), self._cluster
        self._enforced = enforced if cluster is None else {**enforced, **cluster._enforced}
        self._shadow = shadow if cluster is None else {**shadow, **cluster._shadow}
        self.names = frozenset(self._enforced) | frozenset(self._shadow)

    def charge(
        self, counted: Mapping[bytes, int], now_ms: int, *, told: bool = True, in_turn: bool = False
    ) -> int:
        """Charge the bytes of a request to the budgets of its topics (`counted`: topic in UTF-8 → bytes).
        Return the longest of their throttle times (ms).

        `told`: False if the response has no field for a throttle time. The return value is then 0, and the
        next request for these topics is told the rest of the throttle time (`tell_rest`). `in_turn`: True for
        the response of a fetch, whose connection goes to the end of each topic's line
        (`Budget.charge_in_turn`).
        """
        wait_ms = 0
        for name, size in counted.items():
            shadow = self._shadow.get(name)
            if shadow is not None:
                shadow.charge(size, now_ms)
            budget = self._enforced.get(name)
            if budget is None:
                continue
            if not told:
                budget.charge_untold(size, now_ms, in_turn=in_turn)
            elif in_turn:
                wait_ms = max(wait_ms, budget.charge_in_turn(size, now_ms))
            else:
                wait_ms = max(wait_ms, budget.charge(size, now_ms))
        return wait_ms

    def throttled_until_ms(self, topics: Iterable[str] | None = None) -> int:
        """Return the time (ms) at which the last throttle of these topics ends; 0 if none of them has a rate.
        `topics`: None for all topics with a rate.
        """
        return max((budget.throttled_until_ms for budget in self._of(topics)), default=0)

    def closed_until_ms(self, topics: Iterable[str] | None, *, in_line: bool) -> int:
        """Return the time (ms) until which a connection's fetches of these topics bring no records, like
        `Budget.closed_until_ms`.
        """
        return max((budget.closed_until_ms(in_line=in_line) for budget in self._of(topics)), default=0)

    def fetch_max_bytes_at(self, topics: Iterable[str] | None, now_ms: int, *, in_line: bool) -> int:
        """Return the maximum `max_bytes` of a fetch of these topics, like `Budget.fetch_max_bytes_at`. Only
        topics over their rates bound the fetch, because it may ask for others, too.
        """
        over = (budget for budget in self._of(topics) if budget.throttled_until_ms > now_ms)
        return min((budget.fetch_max_bytes_at(now_ms, in_line=in_line) for budget in over), default=INT32_MAX)

    def tell_rest(self, topics: Iterable[str] | None, now_ms: int, most_ms: int = INT32_MAX) -> int:
        """Return the time (ms, at most `most_ms`) for which the longest throttle of these topics still lasts;
        0 if no throttle lasts. The caller tells this time to a request that was not charged, so count that
        request as throttled. `topics`: None for all topics with a rate.
        """
        return max((budget.tell_rest(now_ms, most_ms) for budget in self._of(topics)), default=0)

    def _of(self, topics: Iterable[str] | None) -> list[Budget]:
        names = self._enforced.keys() if topics is None else {topic.encode() for topic in topics}
        return [self._enforced[name] for name in names if name in self._enforced]

    @property
    def enforces(self) -> bool:
        """True if any topic has an enforced rate."""
        return bool(self._enforced)

    def budgets(self, *, shadow: bool = False) -> Iterator[Budget]:
        """Return the enforced budgets of this broker (its shadow budgets if `shadow`), without the budgets
        that all brokers of a cluster share. Each budget has its topic in `tags`.
        """
        return iter(self._own[shadow].values())

    def own(self, tags: Tags, *, shadow: bool) -> Budget | None:
        """Return this broker's enforced (or `shadow`) budget with these tags; None if the topic has none."""
        budget = self._own[shadow].get(tags.topic.encode("utf-8", "surrogatepass"))
        return budget if budget is not None and budget.tags == tags else None

    def apply_part(self, tags: Tags, *, shadow: bool) -> None:
        """Give this broker's enforced (or `shadow`) budget with these tags the part of its limit that this
        Weir uses now (`Sharing.part`).
        """
        budget = self.own(tags, shadow=shadow)
        if budget is not None:
            limit = self._table.topics(self.key, shadow=shadow)[tags.topic]
            budget.set_limit(limit * self._part(tags, is_shadow=shadow))

    def watch(self, *, shadow: bool) -> list[Tags]:
        """Return a list to which the tags of this broker's enforced (or `shadow`) budgets are added, as in
        `ClientQuotas.watch`.
        """
        noted: list[Tags] = []
        note = self._notes[shadow] = noted.append
        for budget in self._own[shadow].values():
            budget.watch(note)
        return noted

    def side(self, *, shadow: bool) -> TopicBudgets:
        """Return the same budgets by their tags, for processes that share or take over their usage."""
        return TopicBudgets(self, is_shadow=shadow)

    def _made(
        self,
        table: QuotaTable,
        same: Mapping[bytes, Budget],
        was: Mapping[bytes, Budget],
        now_ms: int,
        *,
        is_shadow: bool,
    ) -> dict[bytes, Budget]:
        made: dict[bytes, Budget] = {}
        for topic, limit in table.topics(self.key, shadow=is_shadow).items():
            name = topic.encode()
            options = table.options_of(Entity(topic=topic), shadow=is_shadow)
            if self._scope is not None and options.scope is not self._scope:
                continue
            budget = same.get(name)
            if budget is None:
                budget = self._new(topic, limit, now_ms, is_shadow=is_shadow)
                if name in was:
                    budget.inherit(was[name])
            budget.set_limit(limit * self._part(budget.tags, is_shadow=is_shadow))
            made[name] = paced(budget, options.pacing or table.pacing)
            if made[name] is not same.get(name):
                self._note(made[name], is_shadow=is_shadow)
        return made

    def _note(self, budget: Budget, *, is_shadow: bool) -> None:
        """Tell those who look at used budgets, or share usage, of a new one."""
        note, sharing = self._notes[is_shadow], self.sharing[is_shadow]
        if note is not None:
            budget.watch(note)
        if sharing is not None:
            sharing.restored(budget.tags)

    def _part(self, tags: Tags, *, is_shadow: bool) -> float:
        sharing = self.sharing[is_shadow]
        return 1.0 if sharing is None else sharing.part(tags)

    def _new(self, topic: str, limit: float, now_ms: int, *, is_shadow: bool) -> Budget:
        tags = Tags("", "", topic=topic)
        return Budget(
            tags,
            limit,
            now_ms,
            num_samples=self._num_samples,
            window_s=self._window_s,
            is_shadow=is_shadow,
        )


class TopicBudgets:
    """The budgets of one topic rate, enforced or shadow ones, with the methods of `ClientQuotas` by which
    processes share or take over usage.
    """

    __slots__ = ("_is_shadow", "_rates")

    def __init__(self, rates: TopicRates, *, is_shadow: bool) -> None:
        """Show the budgets that `rates` has at each call."""
        self._rates = rates
        self._is_shadow = is_shadow

    def slices(self) -> Iterator[list[Budget]]:
        """Yield all budgets in lists whose handling takes about a millisecond."""
        budgets = list(self._rates.budgets(shadow=self._is_shadow))
        for begin in range(0, len(budgets), SLICE):
            yield budgets[begin : begin + SLICE]

    def watch(self) -> list[Tags]:
        """Return a list to which the tags of used budgets are added, as in `ClientQuotas.watch`."""
        return self._rates.watch(shadow=self._is_shadow)

    @property
    def sharing(self) -> Sharing | None:
        """Object that shares the budgets with other Weirs; None if they count the usage at this Weir only."""
        return self._rates.sharing[self._is_shadow]

    @sharing.setter
    def sharing(self, sharing: Sharing | None) -> None:
        self._rates.sharing[self._is_shadow] = sharing

    @property
    def generation(self) -> int:
        """A number that grows when budgets are removed."""
        return self._rates.generation

    def peek(self, user: str, client_id: str) -> Budget | None:
        """Return None: no rate of a topic belongs to a client."""
        del user, client_id
        return None

    def apply_part(self, tags: Tags) -> None:
        """Give the budget with these tags the part of its limit that this Weir uses now (`Sharing.part`)."""
        self._rates.apply_part(tags, shadow=self._is_shadow)

    def known(self, tags: Tags) -> Budget | None:
        """Return the budget with these tags; None if there is no such budget."""
        return self._rates.own(tags, shadow=self._is_shadow)

    def restored(self, tags: Tags, now_ms: int) -> Budget | None:
        """Return the budget with these tags; None if no entry limits the topic. A budget exists as long as
        its entry, so this method creates none.
        """
        del now_ms
        return self.known(tags)


class TopicQuotas:
    """Produce and fetch rates of topics, at one broker or in one cluster."""

    __slots__ = ("fetch", "produce")

    def __init__(
        self,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        *,
        scope: Scope | None = None,
        cluster: TopicQuotas | None = None,
    ) -> None:
        """Begin without rates. `num_samples` and `window_s` are Kafka's `quota.window.num` and
        `quota.window.size.seconds`. `scope`: scope of the entries that have budgets here, None for all.
        `cluster`: topic rates of the entries with cluster scope, whose budgets all brokers share.
        """
        shared: tuple[TopicRates | None, TopicRates | None] = (None, None)
        if cluster is not None:
            shared = cluster.produce, cluster.fetch
        produce, fetch = BYTE_RATES
        self.produce: TopicRates = TopicRates(produce, num_samples, window_s, scope, shared[0])
        self.fetch: TopicRates = TopicRates(fetch, num_samples, window_s, scope, shared[1])

    def update(self, table: QuotaTable) -> None:
        """Use the rates of `table` from now on."""
        self.produce.update(table)
        self.fetch.update(table)

    def __iter__(self) -> Iterator[TopicRates]:
        """Yield the produce rates, then the fetch rates."""
        return iter((self.produce, self.fetch))

    def __bool__(self) -> bool:
        """Return True if any topic has a rate."""
        return bool(self.produce.names or self.fetch.names)
