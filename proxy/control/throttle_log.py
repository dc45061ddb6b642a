"""Log who is throttled: one line per entity and quota when it begins, one a minute while it lasts, one at its
end. Shadow quotas, which delay nothing, have the same lines under other names.

An *episode* is a time in which an entity is throttled again and again, with pauses of less than `QUIET_MS`.
At most `NAMED_MAX` episodes have lines of their own at a time; one line a minute counts the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import structlog

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.throttled import (
    SLICE,
    Connected,
    Connections,
    Throttled,
    Who,
    read_connections,
    read_throttles,
)
from weir.quotas import QuotaKey
from weir.quotas.connections import ConnectionQuotas
from weir.quotas.limiters.budgets import UNLIMITED

log = structlog.get_logger("weir.throttle")

PERIOD_S: Final = 5.0
"""Time (s) between two looks at the counters; a beginning is logged at most this much later."""
QUIET_MS: Final = 30_000
"""Time (ms) without a throttle after which an episode has ended. It is longer than the window of a rate, so
that a client that stays at its quota has one episode.
"""
REMIND_MS: Final = 60_000
"""Time (ms) between two lines about an episode that lasts."""
NAMED_MAX: Final = 20
"""Maximum number of episodes, of enforced and of shadow quotas each, that have lines of their own."""
MUTATIONS: Final = QuotaKey.CONTROLLER_MUTATION_RATE
PERCENT_DIGITS: Final = 2
"""Number of decimal places of a rate of request time (percent) in a log line. Other rates are logged as whole
numbers.
"""


class _Events(NamedTuple):
    """Texts of the log lines."""

    begins: str
    goes_on: str
    ended: str
    of_others: str


ENFORCED: Final = _Events(
    "throttling begins", "throttling goes on", "throttling ended", "throttling of others"
)
SHADOW: Final = _Events(
    "shadow throttling begins",
    "shadow throttling goes on",
    "shadow throttling ended",
    "shadow throttling of others",
)


@dataclass(slots=True)
class _Episode:
    """Throttles of one entity by one quota, from the first one to a pause of `QUIET_MS`."""

    began_ms: int
    latest_ms: int
    """Time (ms) of the latest look that has found new throttles."""
    told_ms: int
    """Time (ms) of the latest line."""
    total: Throttled
    """Throttles since the beginning."""
    untold: Throttled
    """Throttles since the latest line."""

    def add(self, new: Throttled, now_ms: int) -> None:
        """Add throttles that were counted since the previous look."""
        self.latest_ms = now_ms
        self.total, self.untold = self.total.plus(new), self.untold.plus(new)

    def has_ended(self, now_ms: int) -> bool:
        """Return True if the last throttle is over, and no other has come for `QUIET_MS`."""
        return now_ms - self.latest_ms >= QUIET_MS and self.total.until_ms <= now_ms


class ThrottleLog:
    """Logs the episodes of enforced quotas, or with `shadow` those of shadow quotas."""

    def __init__(
        self,
        registry: QuotaRegistry,
        connections: ConnectionQuotas,
        connected: Connected = tuple,
        *,
        shadow: bool = False,
    ) -> None:
        """Begin with no throttles read. `connected` returns the clients of the open connections."""
        self._registry = registry
        self._connections = connections
        self._connected = connected
        self._shadow = shadow
        self._events = SHADOW if shadow else ENFORCED
        self._read: dict[Who, Throttled] = {}
        """Counts of the previous look."""
        self._episodes: dict[Who, _Episode] = {}
        self._others = Throttled()
        """Throttles of entities without an episode since the latest line about them."""
        self._entities = 0
        """Number of these entities, in the look that has found most since the latest line about them."""
        self._others_ms = -math.inf
        """Time (ms) of the latest line about others."""

    def look(self, now_ms: int) -> Iterator[None]:
        """Read the counters, and log beginnings, episodes that last, and ends, in steps of about a
        millisecond. The caller serves sockets at each yield.
        """
        found: dict[Who, Throttled] = {}
        yield from read_throttles(self._registry, self._connections, found, now_ms, shadow=self._shadow)
        longest: list[tuple[Who, Throttled]] = []
        yield from self._compare(found, longest, now_ms)
        beginning = {who: Connections() for who, _new in longest}
        yield from read_connections(self._connected, self._registry, beginning, shadow=self._shadow)
        for who, new in longest:
            self._begin(who, new, beginning[who], now_ms)
        self._end(now_ms)
        self._remind(now_ms)
        self._say_others(now_ms)

    def _compare(
        self, found: dict[Who, Throttled], longest: list[tuple[Who, Throttled]], now_ms: int
    ) -> Iterator[None]:
        """Add the throttles since the previous look to their episodes. Put entities without an episode into
        `longest`, those with the longest throttles, as many as have room; count the others.
        """
        before, self._read = self._read, found
        room, others = max(NAMED_MAX - len(self._episodes), 0), 0
        remaining = iter(found.items())
        while part := list(islice(remaining, SLICE)):
            for who, throttled in part:
                new = throttled.since(before.pop(who, None))
                if new.count and who in self._episodes:
                    self._episodes[who].add(new, now_ms)
                elif new.count:
                    longest.append((who, new))
            longest.sort(key=_throttle_ms, reverse=True)
            for _who, new in longest[room:]:
                self._others = self._others.plus(new)
                others += 1
            del longest[room:]
            yield
        self._entities = max(self._entities, others)

    def _begin(self, who: Who, new: Throttled, connections: Connections, now_ms: int) -> None:
        self._episodes[who] = _Episode(now_ms, now_ms, now_ms, new, Throttled())
        log.info(
            self._events.begins,
            **self._whose(who),
            **_counts(who, new),
            **_rate_and_limit(who, new),
            **_from(who, connections),
        )

    def _remind(self, now_ms: int) -> None:
        """Log the episodes that last, each once a minute."""
        for who, episode in self._episodes.items():
            if now_ms - episode.told_ms >= REMIND_MS and episode.untold.count:
                untold, episode.untold, episode.told_ms = episode.untold, Throttled(), now_ms
                log.info(
                    self._events.goes_on,
                    **self._whose(who),
                    **_counts(who, untold),
                    **_rate_and_limit(who, self._read.get(who, untold)),
                    lasting_s=(now_ms - episode.began_ms) / 1000,
                )

    def _end(self, now_ms: int) -> None:
        """Log the ends of episodes."""
        ended = [(who, episode) for who, episode in self._episodes.items() if episode.has_ended(now_ms)]
        for who, episode in ended:
            del self._episodes[who]
            until_ms = max(episode.latest_ms, episode.total.until_ms)
            lasted_s = (until_ms - episode.began_ms) / 1000
            log.info(self._events.ended, **self._whose(who), **_counts(who, episode.total), lasted_s=lasted_s)

    def _say_others(self, now_ms: int) -> None:
        """Log the throttles of entities without an episode, at most once a minute."""
        if self._others.count and now_ms - self._others_ms >= REMIND_MS:
            others, self._others = self._others, Throttled()
            entities, self._entities = self._entities, 0
            self._others_ms = now_ms
            log.info(
                self._events.of_others,
                entities=entities,
                count=others.count,
                seconds=others.throttle_ms / 1000,
            )

    def _whose(self, who: Who) -> dict[str, object]:
        """Return the fields that name the quota, the entity and the winning entry of the quotas, which is
        None if the entry has been removed.
        """
        key, tags = who
        names = {name: value for name, value in tags._asdict().items() if value}
        table = self._registry.in_force
        entry = (table.shadow_limits(key) if self._shadow else table.limits(key)).entry_of(tags)
        return {"quota": key.value, **names, "entry": None if entry is None else str(entry)}


def _throttle_ms(candidate: tuple[Who, Throttled]) -> int:
    return candidate[1].throttle_ms


def _counts(who: Who, throttled: Throttled) -> dict[str, object]:
    counts: dict[str, object] = {"count": throttled.count, "seconds": throttled.throttle_ms / 1000}
    return {**counts, "refused": throttled.refused} if who[0] is MUTATIONS else counts


def _rate_and_limit(who: Who, throttled: Throttled) -> dict[str, object]:
    key = who[0]
    limit = None if throttled.limit == UNLIMITED else throttled.limit  # the entry has been removed
    if key is MUTATIONS:
        return {"limit": limit}
    digits = PERCENT_DIGITS if key is QuotaKey.REQUEST_PERCENTAGE else None
    return {"rate": round(throttled.rate, digits), "limit": limit}


def _from(who: Who, connections: Connections) -> dict[str, object]:
    """Return the fields with the number of connections and some of their addresses. The budgets of topics and
    addresses belong to no connections.
    """
    tags = who[1]
    if tags.topic or tags.ip:
        return {}
    return {"connections": connections.count, "addresses": connections.addresses}
