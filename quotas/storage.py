"""Storage budgets: how many bytes brokers store, or have left, and which topics are over a mark.

While a budget is over, an ordinary produce rate limits its topics, or its group: the `over_byte_rate` of its
entry, unless a lower one is configured. `StorageBudgets.applied` adds these rates to a quota table. A budget
is kept again only `MARGIN` from its mark, so that deleted segments do not switch it off and on.

>>> topics = Entity(topic_prefix="pay.")
>>> table = QuotaTable({(topics, QuotaKey.STORED_BYTES_MAX): 1000, (topics, QuotaKey.OVER_BYTE_RATE): 64.0})
>>> budgets = StorageBudgets()
>>> budgets.use(table)
True
>>> budgets.read(1, BrokerStorage({"pay.a": 700, "other": 5000}, None), now_ms=0)
>>> budgets.read(2, BrokerStorage({"pay.a": 700}, None), now_ms=0)
>>> budgets.judge(now_ms=0), dict(budgets.applied(table).topics(QuotaKey.PRODUCER_BYTE_RATE))
(True, {'pay.a': 64.0})
"""

# mypyc: skip, because only the supervisor calls it; no request does.
from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.table.entities import Entity
from weir.quotas.table.quota_delta import QuotaDelta, QuotaValue
from weir.quotas.table.quota_kind import KINDS, STAND_INS, STORAGE_MARKS, QuotaKey
from weir.quotas.table.quota_table import QuotaTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

STALE_MS: Final = 300_000
"""Age (ms) from which on what a broker has told does not count."""
MARGIN: Final = 0.05
"""Part of the mark by which storage must be on the good side before a budget is kept again."""
((_LIMITED, _OVER),) = STAND_INS.items()


class BrokerStorage(NamedTuple):
    """The storage of one broker."""

    stored: Mapping[str, int]
    """Topic → bytes of its replicas."""
    usable: int | None
    """Number of bytes that are left on the broker's fullest volume; None if the broker does not tell it."""


class StorageMark(NamedTuple):
    """A storage budget's mark."""

    entity: Entity
    key: QuotaKey
    value: float

    def __str__(self) -> str:
        """Return a text such as `stored_bytes_max of topic prefix payments.`."""
        return f"{self.key.value} of {self.entity}"

    @property
    def exceeded(self) -> str:
        """Beginning of the sentence that says that the budget is over."""
        return f"{self} is exceeded"


class StorageReading(NamedTuple):
    """A storage budget, and what exists."""

    mark: StorageMark
    is_shadow: bool
    over_rate: float | None
    """Rate (bytes/s) while the budget is over; None if it is only told."""
    number: int | None
    """Number of bytes to compare with the mark; None if it is unknown."""
    is_over: bool


class StorageBudgets:
    """The storage budgets of one cluster, and what its brokers store."""

    def __init__(self) -> None:
        self._marks: dict[StorageMark, tuple[bool, float | None]] = {}
        """Mark → (True for a shadow entry, rate while over)."""
        self._brokers: dict[int, tuple[BrokerStorage, int]] = {}
        """Node id → (what it stores, time in ms at which it told that)."""
        self._numbers: dict[StorageMark, int] = {}
        self._over: tuple[frozenset[StorageMark], frozenset[str]] = frozenset(), frozenset()
        """(Marks that are exceeded, topics of the cluster); replaced as a whole: a thread reads it."""

    @property
    def is_used(self) -> bool:
        """True if there are storage budgets, enforced or in shadow."""
        return bool(self._marks)

    def use(self, table: QuotaTable) -> bool:
        """Use the budgets of `table` from now on. Return True if they are others than before."""
        before, self._marks = self._marks, dict(_marks_of(table))
        return self._marks != before

    def read(self, node_id: int, storage: BrokerStorage, now_ms: int) -> None:
        """Take what a broker stores now."""
        self._brokers[node_id] = storage, now_ms

    def is_known(self, now_ms: int) -> bool:
        """Return True if a broker has told what it stores, and that counts still."""
        return bool(self._fresh(now_ms))

    def judge(self, now_ms: int) -> bool:
        """Find the budgets that are over now. Return True if `applied` may return other rates than before."""
        fresh = self._fresh(now_ms)
        was_over, _topics = before = self._over
        numbers = {mark: _number(mark, fresh) for mark in self._marks}
        self._numbers = {mark: number for mark, number in numbers.items() if number is not None}
        over = frozenset(
            mark for mark, number in self._numbers.items() if _is_over(mark, number, mark in was_over)
        )
        topics = frozenset(topic for storage in fresh for topic in storage.stored) if over else frozenset()
        self._over = over, topics
        return self._over != before

    def applied(self, table: QuotaTable) -> QuotaTable:
        """Return the table with the produce rates of the budgets that are over: the same table if none is.
        No rate is higher than in `table`.
        """
        over, topics = self._over
        enforced, shadow = (
            dict(_lowered(table, _rates_over(table, over, topics, is_shadow=side), is_shadow=side))
            for side in (False, True)
        )
        return table.applied(QuotaDelta(enforced, shadow))

    def cause(self, entity: Entity, key: QuotaKey, limit: float, *, shadow: bool) -> StorageMark | None:
        """Return the budget that has set the produce rate `limit` of a topic or group; None if none has."""
        if key is not _LIMITED:
            return None
        for mark in sorted(self._over[0] & self._marks.keys(), key=str):
            prefix = mark.entity.topic_prefix
            concerns = entity == mark.entity if prefix is None else (entity.topic or "").startswith(prefix)
            if concerns and self._marks[mark] == (shadow, limit):
                return mark
        return None

    def forecast(
        self, mark: StorageMark, over_rate: float | None, now_ms: int, *, shadow: bool
    ) -> StorageReading:
        """Return a budget that need not be in use as `judge` would find it now."""
        number = _number(mark, self._fresh(now_ms))
        is_over = number is not None and _is_over(mark, number, mark in self._over[0])
        return StorageReading(mark, shadow, over_rate, number, is_over)

    def readings(self) -> Iterator[StorageReading]:
        """Yield all budgets with what exists."""
        for mark, (is_shadow, rate) in self._marks.items():
            yield StorageReading(mark, is_shadow, rate, self._numbers.get(mark), mark in self._over[0])

    def _fresh(self, now_ms: int) -> list[BrokerStorage]:
        return [storage for storage, read_ms in self._brokers.values() if now_ms - read_ms < STALE_MS]


def _marks_of(table: QuotaTable) -> Iterator[tuple[StorageMark, tuple[bool, float | None]]]:
    """Yield the marks of a table; of equal marks the enforced one last."""
    if not any(map(table.has, STORAGE_MARKS)):
        return  # else 100,000 entries take 6 ms
    for is_shadow in (True, False):
        side = table.shadow if is_shadow else table.values
        for (entity, key), value in side.items():
            if key in STORAGE_MARKS:
                yield (
                    StorageMark(entity, key, value),
                    (is_shadow, side.get((entity, _OVER))),
                )


def _number(mark: StorageMark, brokers: Iterable[BrokerStorage]) -> int | None:
    """Return the number of bytes to compare with the mark; None if no broker has told it."""
    if KINDS[mark.key].is_minimum:
        return min((broker.usable for broker in brokers if broker.usable is not None), default=None)
    topic, prefix = mark.entity.topic, mark.entity.topic_prefix
    if topic is not None:
        sums = [broker.stored.get(topic, 0) for broker in brokers]
    elif prefix is not None:
        sums = [
            sum(size for name, size in broker.stored.items() if name.startswith(prefix)) for broker in brokers
        ]
    else:  # a group's writers may fill any broker
        return max((sum(broker.stored.values()) for broker in brokers), default=None)
    return sum(sums) if sums else None


def _is_over(mark: StorageMark, number: int, was_over: bool) -> bool:
    if KINDS[mark.key].is_minimum:
        return number < mark.value * (1 + MARGIN * was_over)
    return number > mark.value * (1 - MARGIN * was_over)


def _over_rate(table: QuotaTable, mark: StorageMark, *, is_shadow: bool) -> float | None:
    """Return the rate of the entry that has this mark; None if no such entry has a rate."""
    its = table.get((mark.entity, mark.key), shadow=is_shadow)
    rate = table.get((mark.entity, _OVER), shadow=is_shadow)
    return rate.value if its is not None and its.value == mark.value and rate is not None else None


def _rates_over(
    table: QuotaTable, over: Iterable[StorageMark], topics: frozenset[str], *, is_shadow: bool
) -> dict[Entity, float]:
    """Return topic or group → lowest rate of the entries of `table` whose marks are exceeded."""
    rates: dict[Entity, float] = {}
    for mark in over:
        rate = _over_rate(table, mark, is_shadow=is_shadow)
        if rate is not None:
            rates |= {to: min(rates.get(to, rate), rate) for to in _targets(mark.entity, topics)}
    return rates


def _targets(entity: Entity, topics: frozenset[str]) -> Iterable[Entity]:
    """Return the entities whose produce rate a budget of `entity` lowers."""
    prefix = entity.topic_prefix
    return (entity,) if prefix is None else [Entity(topic=name) for name in topics if name.startswith(prefix)]


def _lowered(
    table: QuotaTable, rates: Mapping[Entity, float], *, is_shadow: bool
) -> Iterator[tuple[tuple[Entity, QuotaKey], QuotaValue]]:
    """Yield the changes that give these entities their rate, or leave a lower one. A shadow entry stands for
    the enforced one of the same entity, so the lower of the two counts.
    """
    for entity, rate in rates.items():
        quota = entity, _LIMITED
        own = [table.get(quota, shadow=side) for side in {False, is_shadow}]
        least = min([rate, *(each.value for each in own if each is not None)])
        yield quota, QuotaValue(least, table.options_of(entity, shadow=is_shadow))
