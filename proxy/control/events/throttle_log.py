"""Log who is throttled: one line per entity and quota when it begins, one a minute while it lasts, one at its
end. Publish the beginning and the end as events. Shadow quotas, which delay nothing, have the same lines
under other names.

An *episode* is a time in which an entity is throttled again and again, with pauses of less than `QUIET_MS`.
At most `NAMED_MAX` episodes have lines of their own at a time; one line a minute counts the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from weir.proxy.control.events.records import Publish, Throttling, ThrottlingEnded, finite, names
from weir.proxy.control.peers import EntityPeers, Peers, ReadPeers, WantedPeers
from weir.proxy.control.scan import Scan
from weir.proxy.control.slices import taken
from weir.proxy.control.supervisor import in_steps
from weir.proxy.control.throttled import QUIET_MS, SLICE, Throttled, Who
from weir.quotas.table.quota_kind import KINDS

log = structlog.get_logger("weir.throttle")

PERIOD_S: Final = 1.0
"""Time (s) between two reads of the counters. So the beginning of an episode is told at most this time
late.
"""
REMIND_MS: Final = 60_000
"""Time (ms) between two log lines about an entity that is throttled all the time."""
NAMED_MAX: Final = 20
"""Maximum number of entities whose throttling has log lines of its own at a time, for enforced quotas; the
same number for shadow quotas.
"""
PERCENT_DIGITS: Final = 2
"""Number of decimal places of a rate of request time (percent) in a log line. Other rates are logged as whole
numbers.
"""


class _LogTexts(NamedTuple):
    """Texts of the log lines about throttling, for enforced quotas or for shadow quotas."""

    begins: str
    goes_on: str
    ended: str
    of_others: str


ENFORCED: Final = _LogTexts(
    "throttling begins", "throttling goes on", "throttling ended", "throttling of others"
)
SHADOW: Final = _LogTexts(
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
    """Time (ms) at which new throttles of this episode were last found."""
    told_ms: int
    """Time (ms) of the latest log line about this episode."""
    total: Throttled
    """Number and time of the throttles since the episode began."""
    untold: Throttled = field(default_factory=Throttled)
    """Number and time of the throttles since the latest log line about this episode."""

    def add(self, new: Throttled, now_ms: int) -> None:
        """Add throttles of the episode's entity to the episode, found at `now_ms`."""
        self.latest_ms = now_ms
        self.total.add(new)
        self.untold.add(new)

    def has_ended(self, now_ms: int) -> bool:
        """Return True if the last throttle is over, and no new throttle was found for `QUIET_MS`."""
        return now_ms - self.latest_ms >= QUIET_MS and self.total.until_ms <= now_ms


class ThrottleLog:
    """Logs who is throttled by enforced quotas, or with `shadow` who would be by shadow quotas."""

    def __init__(self, scan: Scan, peers: ReadPeers, publish: Publish, *, shadow: bool = False) -> None:
        """Begin with no throttles read. `peers` reads the clients of the open connections of entities."""
        self._scan = scan
        self._number = 0
        """Number of the latest scan that was read."""
        self._publish = publish
        self._peers = peers
        self._shadow = shadow
        self._events = SHADOW if shadow else ENFORCED
        self._episodes: dict[Who, _Episode] = {}
        self._others = self._others_throttle_ms = 0
        """Number and total time of the throttles of entities that have no log lines of their own, since the
        latest line about such entities.
        """
        self._entities = 0
        """Largest number of entities without log lines of their own that one call of `look` has found
        throttled, since the latest line about such entities.
        """
        self._others_ms = -math.inf
        """Time (ms) of the latest log line about the entities that have no lines of their own."""

    async def look(self, now_ms: int) -> None:
        """Read the counters of throttles. Log where throttling of an entity has begun, goes on, or has ended.
        The work is done in steps of about a millisecond, between which other tasks run.
        """
        await in_steps(self._scan.look(self._number, now_ms))
        self._number = self._scan.number
        found = self._scan.take(shadow=self._shadow)
        longest: list[tuple[Who, Throttled]] = []
        await in_steps(self._compare(found, longest, now_ms))
        if longest:
            entities = [EntityPeers(key, tags) for (key, tags), _new in longest]
            peers = await self._peers(WantedPeers(entities, self._shadow))
            for (who, new), its in zip(longest, peers, strict=True):
                self._begin(who, new, its, now_ms)
        self._end(now_ms)
        self._remind(now_ms)
        self._say_others(now_ms)

    def _compare(
        self, found: dict[Who, Throttled], longest: list[tuple[Who, Throttled]], now_ms: int
    ) -> Iterator[None]:
        """Add the throttles found since the previous call of `look` to the episodes of their entities. Put
        throttled entities without an episode into `longest`, as long as `NAMED_MAX` allows: those with the
        longest throttle times. Count the others together.
        """
        room, others = max(NAMED_MAX - len(self._episodes), 0), 0
        for part in taken(found, SLICE):
            for who, new in part:
                if who in self._episodes:
                    self._episodes[who].add(new, now_ms)
                else:
                    longest.append((who, new))
            longest.sort(key=_throttle_ms, reverse=True)
            for _who, new in longest[room:]:
                self._others += new.count
                self._others_throttle_ms += new.throttle_ms
                others += 1
            del longest[room:]
            yield
        self._entities = max(self._entities, others)

    def _begin(self, who: Who, new: Throttled, connections: Peers, now_ms: int) -> None:
        self._episodes[who] = _Episode(now_ms, now_ms, now_ms, new)
        is_client = not (who[1].topic or who[1].ip)
        self._publish(
            Throttling(
                quota=who[0].value,
                **names(who[1]),
                entry=self._entry(who),
                shadow=self._shadow,
                limit=finite(new.limit),
                rate=None if KINDS[who[0]].is_of_controller else new.rate(now_ms),
                count=new.count,
                throttled_ms=new.throttle_ms,
                refused=new.refused,
                connections=connections.count if is_client else None,
                addresses=tuple(connections.addresses),
            )
        )
        log.info(
            self._events.begins,
            **self._whose(who),
            **_counts(who, new),
            **_rate_and_limit(who, new, now_ms),
            **_from(who, connections),
        )

    def _remind(self, now_ms: int) -> None:
        """Log, once a minute for each entity, that its throttling goes on."""
        for who, episode in self._episodes.items():
            if now_ms - episode.told_ms >= REMIND_MS and episode.untold.count:
                untold, episode.untold, episode.told_ms = episode.untold, Throttled(), now_ms
                log.info(
                    self._events.goes_on,
                    **self._whose(who),
                    **_counts(who, untold),
                    **_rate_and_limit(who, episode.total, now_ms),
                    lasting_s=(now_ms - episode.began_ms) / 1000,
                )

    def _end(self, now_ms: int) -> None:
        """Log each episode (an entity's throttling by one quota) that has ended, and forget it."""
        ended = [(who, episode) for who, episode in self._episodes.items() if episode.has_ended(now_ms)]
        for who, episode in ended:
            del self._episodes[who]
            total = episode.total
            lasted_ms = max(episode.latest_ms, total.until_ms) - episode.began_ms
            self._publish(
                ThrottlingEnded(
                    quota=who[0].value,
                    **names(who[1]),
                    entry=self._entry(who),
                    shadow=self._shadow,
                    limit=finite(total.limit),
                    count=total.count,
                    throttled_ms=total.throttle_ms,
                    refused=total.refused,
                    lasted_ms=lasted_ms,
                )
            )
            counts = _counts(who, total)
            log.info(self._events.ended, **self._whose(who), **counts, lasted_s=lasted_ms / 1000)

    def _say_others(self, now_ms: int) -> None:
        """Log the throttles of all entities beyond `NAMED_MAX` in one line, at most once a minute."""
        if self._others and now_ms - self._others_ms >= REMIND_MS:
            log.info(
                self._events.of_others,
                entities=self._entities,
                count=self._others,
                seconds=self._others_throttle_ms / 1000,
            )
            self._others = self._others_throttle_ms = self._entities = 0
            self._others_ms = now_ms

    def _whose(self, who: Who) -> dict[str, object]:
        """Return the fields of a log line that name the quota, the throttled entity, and the quota entry that
        sets the limit; the last is None if the entry has been removed.
        """
        key, tags = who
        named = {name: value for name, value in tags._asdict().items() if value}
        return {"quota": key.value, **named, "entry": self._entry(who)}

    def _entry(self, who: Who) -> str | None:
        entry = self._scan.registry.in_force.entry_of(*who, shadow=self._shadow)
        return None if entry is None else str(entry)


def _throttle_ms(candidate: tuple[Who, Throttled]) -> int:
    return candidate[1].throttle_ms


def _counts(who: Who, throttled: Throttled) -> dict[str, object]:
    counts: dict[str, object] = {"count": throttled.count, "seconds": throttled.throttle_ms / 1000}
    return {**counts, "refused": throttled.refused} if KINDS[who[0]].is_of_controller else counts


def _rate_and_limit(who: Who, throttled: Throttled, now_ms: int) -> dict[str, object]:
    key = who[0]
    limit = finite(throttled.limit)
    if KINDS[key].is_of_controller:
        return {"limit": limit}
    digits = PERCENT_DIGITS if KINDS[key].unit == "percent" else None
    return {"rate": round(throttled.rate(now_ms), digits), "limit": limit}


def _from(who: Who, connections: Peers) -> dict[str, object]:
    """Return the fields of a log line with the number of the entity's connections and some of their
    addresses. Return no fields for a topic or an IP address, whose budgets belong to no connections.
    """
    tags = who[1]
    if tags.topic or tags.ip:
        return {}
    return {"connections": connections.count, "addresses": connections.addresses}
