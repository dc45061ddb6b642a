"""Per-topic rates: what all clients together produce to a topic, and fetch from it, at one broker.

They are Weir's own, not Kafka's. A request is charged to the client's quota and to those of its topics; of
all waits the longest counts. Only topics that the table names have a rate: there is no default, so there are
no more budgets than entries.

>>> from quotas.table.entities import Entity
>>> table = QuotaTable({(Entity(topic="orders"), QuotaKey.PRODUCER_BYTE_RATE): 100})
>>> topics = TopicQuotas()
>>> topics.update(table)
>>> topics.produce.charge({b"orders": 1500, b"others": 10**9}, now_ms=0)  # 1500 / 100 - 10 s
5000
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from quotas.limiters.budgets import Budget
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.limiters.smooth import paced
from quotas.table.entities import Entity, Tags
from quotas.table.options import Scope
from quotas.table.quota_table import QuotaKey, QuotaTable


class TopicRates:
    """The budgets of one byte rate, by topic; enforced ones, and those that only count (shadow entries)."""

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
        """The numbers are `quota.window.num` and `quota.window.size.seconds`. `scope`: of the entries whose
        budgets these are; None: of any. `cluster` has those with cluster scope, if there is one.
        """
        self.key = key
        self._scope = scope if cluster is None else Scope.BROKER
        self._cluster = cluster
        self.names: frozenset[bytes] = frozenset()
        """The topics that have a rate, in UTF-8."""
        self._num_samples = num_samples
        self._window_s = window_s
        self._own: tuple[dict[bytes, Budget], dict[bytes, Budget]] = ({}, {})
        """The enforced budgets, and those of shadow entries, without those of the cluster."""
        self._enforced: dict[bytes, Budget] = {}
        self._shadow: dict[bytes, Budget] = {}

    def update(self, table: QuotaTable, now_ms: int = 0) -> None:
        """Use the rates of `table` from now on; what was used stays, also when an entry changes its mode."""
        enforced, shadow = self._own
        was = {**shadow, **enforced}
        enforced = self._made(table, enforced, was, now_ms, is_shadow=False)
        shadow = self._made(table, shadow, was, now_ms, is_shadow=True)
        self._own, cluster = (enforced, shadow), self._cluster
        self._enforced = enforced if cluster is None else {**enforced, **cluster._enforced}
        self._shadow = shadow if cluster is None else {**shadow, **cluster._shadow}
        self.names = frozenset(self._enforced) | frozenset(self._shadow)

    def charge(self, counted: Mapping[bytes, int], now_ms: int, *, told: bool = True) -> int:
        """Charge bytes to their topics; return how long (ms) the client must wait.

        That is 0 unless `told`: the next request for these topics is told then.
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
        """When the last wait that was announced for one of these topics ends; None: for any topic."""
        return max((budget.throttled_until_ms for budget in self._of(topics)), default=0)

    def tell_rest(self, topics: Iterable[str] | None, now_ms: int) -> int:
        """Count a request for these topics (None: for any) that is told the rest of their throttle times and
        is not charged; return the longest rest (ms), 0 if all are over.
        """
        return max((budget.tell_rest(now_ms) for budget in self._of(topics)), default=0)

    def _of(self, topics: Iterable[str] | None) -> list[Budget]:
        names = self._enforced.keys() if topics is None else {topic.encode() for topic in topics}
        return [self._enforced[name] for name in names if name in self._enforced]

    @property
    def enforces(self) -> bool:
        """Whether any of the rates makes anybody wait."""
        return bool(self._enforced)

    def budgets(self, *, shadow: bool = False) -> Iterator[Budget]:
        """The enforced budgets, or those of shadow entries, without those of the cluster; each has the topic
        in its `tags`.
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
    """The rates of topics at one broker."""

    __slots__ = ("fetch", "produce")

    def __init__(
        self,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        *,
        scope: Scope | None = None,
        cluster: TopicQuotas | None = None,
    ) -> None:
        """Begin without any; as `TopicRates`."""
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
        """Both rates."""
        return iter((self.produce, self.fetch))

    def __bool__(self) -> bool:
        """Whether any topic has a rate."""
        return bool(self.produce.names or self.fetch.names)
