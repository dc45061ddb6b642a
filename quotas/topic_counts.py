"""Topic counts: how many topics and partitions exist with a prefix, and which creations would exceed a limit.

Kafka has no such limits, and keeps no owner of a topic; prefixes are what its ACLs use. A creation under way
counts as if it were done, so limits are not exceeded while brokers' metadata is late.

>>> from weir.quotas.table.entities import Entity
>>> counts = TopicCounts()
>>> counts.use(QuotaTable({(Entity(topic_prefix="pay."), QuotaKey.TOPICS_MAX): 2}))
>>> counts.read({"pay.a": 3, "other": 1}, now_ms=0)
>>> [bool(why) for why in counts.reserve([TopicGrowth("pay.b", 0, 5), TopicGrowth("pay.c", 0, 5)], now_ms=0)]
[False, True]
"""

# mypyc: skip, because only creations of topics call it.
from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.table.quota_kind import COUNTS, KINDS, QuotaKey
from weir.quotas.table.quota_table import QuotaTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

UNDER_WAY_MS: Final = 60_000
"""Time (ms) for which a creation counts whose result is not known: a broker's default time for a request, and
longer than its metadata is late.
"""
LATE_MS: Final = 15_000
"""Time (ms) after a change for which brokers' metadata may not show it (measured: up to 13 s)."""
LATE: Final = -1
"""Result of a request after which a topic may still be created or grown."""
LOST: Final = -2
"""Result of a creation or growth whose connection ended before the broker's answer."""
NEVER: Final = 2**62
"""Time (ms) of a request that was sent after all changes."""
LATE_MAX: Final = 10_000
"""Maximum number of changes that metadata may not show, and of creations under way; the oldest are dropped
first.
"""


class TopicGrowth(NamedTuple):
    """A topic that is to be created, or to get partitions."""

    name: str
    before: int
    """Number of its partitions; 0 for a topic to create."""
    after: int


class CountLimit(NamedTuple):
    """A limit on what may exist with a prefix."""

    prefix: str
    key: QuotaKey
    value: float
    is_shadow: bool


class CountReading(NamedTuple):
    """A limit, and what exists with its prefix."""

    limit: CountLimit
    number: int
    """Number of topics or partitions, with those under way."""
    refused: int
    """Number of topics that were refused because of the limit; would have been, of a shadow entry."""


class _Until(NamedTuple):
    partitions: int
    until_ms: int
    requests: int = 1
    """Number of requests under way that may give the topic its partitions."""
    is_late: bool = False
    """True if a request that was answered may still give the topic its partitions."""


class TopicCounts:
    """The topics of one cluster, and the limits on their number by prefix. Nothing is refused before the
    first `read`.
    """

    def __init__(self) -> None:
        self.is_known = False
        """True once the topics of the cluster were read."""
        self._limits: dict[str, list[CountLimit]] = {}
        """Prefix → its limits."""
        self._lengths: list[int] = []
        """Numbers of characters of the prefixes."""
        self._sizes: dict[str, int] = {}
        """Topic → number of its partitions."""
        self._changed: dict[str, _Until] = {}
        """Topic → number of its partitions after a change that metadata may not show; the oldest first."""
        self._under_way: dict[str, _Until] = {}
        """Topic → number of partitions that it may soon have; the oldest first."""
        self._totals: Counter[tuple[str, QuotaKey]] = Counter()
        self._refused: Counter[CountLimit] = Counter()

    @property
    def prefixes(self) -> Iterable[str]:
        """Prefixes with a limit, enforced or in shadow."""
        return self._limits.keys()

    @property
    def is_enforced(self) -> bool:
        """True if a limit is enforced."""
        return any(not limit.is_shadow for its in self._limits.values() for limit in its)

    def use(self, table: QuotaTable) -> None:
        """Use the limits of `table` from now on."""
        limits: dict[str, list[CountLimit]] = {}
        for limit in _limits_of(table):
            limits.setdefault(limit.prefix, []).append(limit)
        if limits != self._limits:
            self._limits = limits
            self._lengths = sorted({len(prefix) for prefix in limits})
            self._refused = Counter(
                {one: self._refused[one] for its in limits.values() for one in its if one in self._refused}
            )
            self._count_again()

    def read(self, topics: Mapping[str, int], now_ms: int) -> None:
        """Take the cluster's topics (name → number of partitions) as brokers' metadata shows them. What was
        recently changed (`settle`) stays as it was changed.

        If a recently deleted topic is created again past this Weir, it counts `LATE_MS` late.
        """
        self._expire(now_ms)
        self._sizes = dict(topics)
        for name, changed in self._changed.items():
            if partitions := changed.partitions:
                self._sizes[name] = max(partitions, self._sizes.get(name, 0))
            else:
                self._sizes.pop(name, None)
        self.is_known = True
        self._count_again()

    def reserve(
        self, wanted: Sequence[TopicGrowth], now_ms: int, *, validate_only: bool = False
    ) -> list[str]:
        """Return for each topic, in order, the reason why it is refused; empty if it is admitted, and counts
        from now on until `settle`, or for `UNDER_WAY_MS`. With `validate_only` nothing counts afterwards, nor
        as refused.
        """
        self._expire(now_ms)
        if not validate_only:
            return [self._admit(growth, now_ms) for growth in wanted]
        under_way, refused = dict(self._under_way), self._refused.copy()
        reasons = [self._admit(growth, now_ms) for growth in wanted]
        tried = {growth.name: self._size(growth.name) for growth in wanted}
        self._under_way, self._refused = under_way, refused
        for name, was in tried.items():
            self._recount(name, was)
        return reasons

    def settle(self, sizes: Mapping[str, int | None], now_ms: int, sent_ms: int = NEVER) -> None:
        """Take the results of changes: topic → number of its partitions, 0 for a deleted topic, None for one
        that was not changed, LATE for one that may still be changed, LOST for one of a lost connection.
        `now_ms` and `sent_ms` are the times (ms) of the answer and of its request.

        A topic that was created while its deletion was under way counts until metadata shows it no more: the
        broker may have deleted it first.
        """
        for name, partitions in sizes.items():
            changed = self._changed.get(name)
            if partitions == 0 and changed is not None and changed.until_ms - LATE_MS > sent_ms:
                continue
            was = self._size(name)
            if partitions == LOST:
                partitions = was if name in self._under_way else None
            self._leave(name, partitions)
            if partitions is not None and partitions != LATE:
                self._changed.pop(name, None)
                self._changed[name] = _Until(partitions, now_ms + LATE_MS)
                if partitions:
                    self._sizes[name] = partitions
                else:
                    self._sizes.pop(name, None)
            self._recount(name, was)
        while len(self._changed) > LATE_MAX:
            del self._changed[next(iter(self._changed))]

    def readings(self) -> Iterator[CountReading]:
        """Yield all limits with what exists; nothing before the first `read`."""
        for limit in (one for its in self._limits.values() for one in its):
            if self.is_known:
                yield CountReading(limit, self._totals[limit.prefix, limit.key], self._refused[limit])

    def number(self, prefix: str, key: QuotaKey) -> int:
        """Return the number of topics, or of partitions, with a prefix that need not have a limit."""
        names = [name for name in self._sizes.keys() | self._under_way.keys() if name.startswith(prefix)]
        return len(names) if key is QuotaKey.TOPICS_MAX else sum(map(self._size, names))

    def _admit(self, growth: TopicGrowth, now_ms: int) -> str:
        """Return the reason why the topic is refused; empty if it is admitted, and counts from now on."""
        name, known, after = growth
        if known > self._sizes.get(name, 0) and self._is_counted(name):
            was = self._size(name)
            self._sizes[name] = known
            self._recount(name, was)
        size = self._size(name)
        if after <= size:  # another request for the topic is under way, or Metadata was late
            self._enter(growth, now_ms)
            return ""
        added = {QuotaKey.TOPICS_MAX: int(not size), QuotaKey.PARTITIONS_MAX: after - size}
        reason = ""
        for limit in self._limits_for(name) if self.is_known else ():
            total = self._totals[limit.prefix, limit.key]
            if added[limit.key] and total + added[limit.key] > limit.value:
                self._refused[limit] += 1
                if not limit.is_shadow:
                    reason = reason or _reason(limit, total)
        if not reason:
            self._enter(growth, now_ms)
            self._recount(name, size)
        return reason

    def _enter(self, growth: TopicGrowth, now_ms: int) -> None:
        """Note one more request under way for a topic."""
        name, _known, after = growth
        before = self._under_way.pop(name, None) or _Until(0, 0, 0)
        if self._is_counted(name):
            partitions = max(after, before.partitions)
            until_ms = now_ms + UNDER_WAY_MS
            self._under_way[name] = _Until(partitions, until_ms, before.requests + 1, before.is_late)
        if len(self._under_way) > LATE_MAX:
            oldest = next(iter(self._under_way))
            was = self._size(oldest)
            del self._under_way[oldest]
            self._recount(oldest, was)

    def _leave(self, name: str, partitions: int | None) -> None:
        """Note that a request for a topic has ended: others may still be under way."""
        under_way = self._under_way.get(name)
        if under_way is None:
            return
        requests = under_way.requests if partitions == 0 else max(under_way.requests - 1, 0)
        is_late = partitions == LATE or (partitions is None and under_way.is_late)
        if requests or is_late:
            self._under_way[name] = under_way._replace(requests=requests, is_late=is_late)
        else:
            del self._under_way[name]

    def _size(self, name: str) -> int:
        under_way = self._under_way.get(name)
        known = self._sizes.get(name, 0)
        return known if under_way is None else max(known, under_way.partitions)

    def _limits_for(self, name: str) -> Iterator[CountLimit]:
        for length in self._lengths:
            yield from self._limits.get(name[:length], ()) if length <= len(name) else ()

    def _is_counted(self, name: str) -> bool:
        return any(True for _limit in self._limits_for(name))

    def _recount(self, name: str, before: int) -> None:
        """Replace `before`, a topic's former number of partitions, by the present one in the totals."""
        after = self._size(name)
        if before == after:
            return
        for prefix, key in {(limit.prefix, limit.key) for limit in self._limits_for(name)}:
            if key is QuotaKey.PARTITIONS_MAX:
                self._totals[prefix, key] += after - before
            else:
                self._totals[prefix, key] += (after > 0) - (before > 0)

    def _count_again(self) -> None:
        self._totals.clear()
        for name in self._sizes.keys() | self._under_way.keys():
            self._recount(name, 0)

    def _expire(self, now_ms: int) -> None:
        for name in _ended(self._under_way, now_ms):
            was = self._size(name)
            del self._under_way[name]
            self._recount(name, was)
        for name in _ended(self._changed, now_ms):
            del self._changed[name]


def _ended(entries: Mapping[str, _Until], now_ms: int) -> list[str]:
    ended: list[str] = []
    for name, entry in entries.items():
        if entry.until_ms > now_ms:
            break
        ended.append(name)
    return ended


def _limits_of(table: QuotaTable) -> Iterator[CountLimit]:
    for is_shadow in (False, True):
        for key in COUNTS:
            for prefix, value in table.topics(key, shadow=is_shadow).items():
                yield CountLimit(prefix, key, value, is_shadow)


def _reason(limit: CountLimit, total: int) -> str:
    unit = KINDS[limit.key].unit
    return (
        f"{limit.key.value} of topic prefix {limit.prefix} is {limit.value:.0f}, and {total} {unit} exist "
        "or are being created: delete some, or ask for a higher limit."
    )
