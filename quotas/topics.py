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

from collections.abc import Iterable, Iterator, Mapping

from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.smooth import paced
from weir.quotas.table.entities import Entity, Tags
from weir.quotas.table.options import Scope
from weir.quotas.table.quota_table import QuotaKey, QuotaTable


class TopicRates:
    """Budgets of one byte rate by topic: enforced budgets, and shadow budgets, which only count."""

    __slots__ = (
        "_cluster",
        "_enforced",
        "_num_samples",
        "_own",
        "_scope",
        "_shadow",
        "_window_s",
        "key",
        "names",
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
        `quota.window.size.seconds`. `scope`: scope of the entries that have budgets here, None for all.
        `cluster`: shared budgets of entries with cluster scope; with it, `scope` is `Scope.BROKER`.
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
        self._enforced: dict[bytes, Budget] = {}
        self._shadow: dict[bytes, Budget] = {}

    def update(self, table: QuotaTable, now_ms: int = 0) -> None:
        """Use the rates of `table` from now on. Usage stays, also if an entry changes between enforced and
        shadow.
        """
        enforced, shadow = self._own
        was = {**shadow, **enforced}
        enforced = self._made(table, enforced, was, now_ms, is_shadow=False)
        shadow = self._made(table, shadow, was, now_ms, is_shadow=True)
        self._own, cluster = (enforced, shadow), self._cluster
        self._enforced = enforced if cluster is None else {**enforced, **cluster._enforced}
        self._shadow = shadow if cluster is None else {**shadow, **cluster._shadow}
        self.names = frozenset(self._enforced) | frozenset(self._shadow)

    def charge(self, counted: Mapping[bytes, int], now_ms: int, *, told: bool = True) -> int:
        """Charge the bytes of a request to the budgets of its topics (`counted`: topic in UTF-8 → bytes).
        Return the longest of their throttle times (ms).

        `told`: False if the response has no field for a throttle time. The return value is then 0, and the
        next request for these topics is told the rest of the throttle time (`tell_rest`).
        """
        wait_ms = 0
        for name, size in counted.items():
            shadow = self._shadow.get(name)
            if shadow is not None:
                shadow.charge(size, now_ms)
            budget = self._enforced.get(name)
            if budget is not None and told:
                wait_ms = max(wait_ms, budget.charge(size, now_ms))
            elif budget is not None:
                budget.charge_untold(size, now_ms)
        return wait_ms

    def throttled_until_ms(self, topics: Iterable[str] | None = None) -> int:
        """Return the time (ms) at which the last throttle of these topics ends; 0 if none of them has a rate.
        `topics`: None for all topics with a rate.
        """
        return max((budget.throttled_until_ms for budget in self._of(topics)), default=0)

    def tell_rest(self, topics: Iterable[str] | None, now_ms: int) -> int:
        """Return the longest rest (ms) of the throttle times of these topics; 0 if all are over. If there is
        a rest, count a throttled request: the caller tells the rest to a request that is not charged.
        `topics`: None for all topics with a rate.
        """
        return max((budget.tell_rest(now_ms) for budget in self._of(topics)), default=0)

    def _of(self, topics: Iterable[str] | None) -> list[Budget]:
        names = self._enforced.keys() if topics is None else {topic.encode() for topic in topics}
        return [self._enforced[name] for name in names if name in self._enforced]

    @property
    def enforces(self) -> bool:
        """True if any topic has an enforced rate."""
        return bool(self._enforced)

    def budgets(self, *, shadow: bool = False) -> Iterator[Budget]:
        """Return the enforced budgets (the shadow budgets if `shadow`), without the cluster's budgets. Each
        budget has its topic in `tags`.
        """
        return iter(self._own[shadow].values())

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
            budget.set_limit(limit)
            made[name] = paced(budget, options.pacing or table.pacing)
        return made

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
        `quota.window.size.seconds`. `scope` and `cluster` have the meaning that they have for `TopicRates`.
        """
        shared: tuple[TopicRates | None, TopicRates | None] = (None, None)
        if cluster is not None:
            shared = cluster.produce, cluster.fetch
        self.produce: TopicRates = TopicRates(
            QuotaKey.PRODUCER_BYTE_RATE, num_samples, window_s, scope, shared[0]
        )
        self.fetch: TopicRates = TopicRates(
            QuotaKey.CONSUMER_BYTE_RATE, num_samples, window_s, scope, shared[1]
        )

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
