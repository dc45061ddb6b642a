"""Tell when the rate of an entity reaches 50, 80 and 100 % of its limit: each level once per episode.

An episode of a level ends when the rate was `MARGIN` below the level for `QUIET_MS`. A client that stays near
a level so causes one event. At most `PER_MINUTE` events are told in a minute, those with the highest levels
first; the others are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain, islice
from typing import Final, NamedTuple

import structlog

from weir.proxy.control.budgets import usage_of
from weir.proxy.control.events.records import Publish, UsageLevel, finite, names
from weir.proxy.control.scan import HIGH, Scan
from weir.proxy.control.slices import slices, taken
from weir.proxy.control.snapshots.records import Where
from weir.proxy.control.throttled import SLICE, Who

log = structlog.get_logger("weir.throttle")

PERIOD_S: Final = 5.0
"""Time (s) between two reads of all rates. A rate is at most a round of scans old, so a level is told at most
twice this time late.
"""
LEVELS: Final = (50, 80, 100)
"""The levels, in percent of the limit."""
MARGIN: Final = LEVELS[0] - round(100 * HIGH)
"""Number of percentage points below a level at which its episode may end. Below the
lowest level it reaches down to `scan.HIGH`.
"""
QUIET_MS: Final = 30_000
"""Time (ms) for which the rate must stay that low."""
PER_MINUTE: Final = 60
MINUTE_MS: Final = 60_000
FOLLOWED_MAX: Final = 10_000
"""Maximum number of entities with an episode. Further entities cause no events until an episode ends."""


class UsedShare(NamedTuple):
    """The usage of one entity under one quota, at the broker with the largest usage."""

    percent: float
    rate: float
    limit: float
    broker: Where

    @property
    def level(self) -> int:
        """The highest level that the usage has reached; 0 for none."""
        return max((level for level in LEVELS if self.percent >= level), default=0)


NOTHING: Final = UsedShare(0, 0, 0, None)


@dataclass(slots=True)
class _HighUsage:
    level: int
    """The highest level whose episode goes on."""
    high_ms: int
    """Time (ms) at which the usage was last near this level, or above it."""

    def note(self, used: UsedShare, now_ms: int) -> bool:
        """Note the present usage. Return True if a higher level begins. End the level's episode, and continue
        with that of a lower level (0 for none), if the usage has been low for `QUIET_MS`.
        """
        begins = used.level > self.level
        if begins or used.percent >= self.level - MARGIN:
            self.level, self.high_ms = max(used.level, self.level), now_ms
        elif now_ms - self.high_ms >= QUIET_MS:
            self.level, self.high_ms = used.level, now_ms
        return begins


class UsageLevels:
    """Publishes and logs levels of usage: of enforced quotas, or with `shadow` of shadow quotas."""

    def __init__(self, scan: Scan, publish: Publish, *, shadow: bool = False) -> None:
        self._scan = scan
        self._round = 0
        """Number of the latest round of scans that was read."""
        self._publish = publish
        self._shadow = shadow
        self._episodes: dict[Who, _HighUsage] = {}
        self._minute_ms = -MINUTE_MS
        """Time (ms) at which the present minute began."""
        self._told = 0
        """Number of events published in the present minute."""
        self._others = 0
        """Number of events that were counted only, since the latest published one."""
        self._unlogged = 0
        """Number of events that were counted only, since the latest log line about them."""

    def look(self, now_ms: int) -> Iterator[None]:
        """Read all rates; publish and log the levels that entities have reached since the previous call. The
        work is done in steps of about a millisecond; the caller serves sockets at each yield.
        """
        found: dict[Who, UsedShare] = {}
        yield from self._read(found, now_ms)
        new: list[tuple[Who, UsedShare]] = []
        yield from self._compare(found, new, now_ms)
        if now_ms - self._minute_ms >= MINUTE_MS:
            self._begin_minute(now_ms)
        told = nlargest(max(PER_MINUTE - self._told, 0), new, key=_urgency)
        self._others += len(new) - len(told)
        self._unlogged += len(new) - len(told)
        for who, used in told:
            self._tell(who, used)

    def _read(self, found: dict[Who, UsedShare], now_ms: int) -> Iterator[None]:
        """Put the usage of each entity that uses much of a limit into `found`."""
        yield from self._scan.look_around(self._round, now_ms)
        self._round = self._scan.rounds
        high = self._scan.take_high(shadow=self._shadow)
        while high:
            for quota, where, _shadow, budget, rate, _usage in high[-SLICE:]:
                # Another table may have changed or removed the limit since the scan read the rate.
                who, percent = (quota, budget.tags), 100 * usage_of(rate, budget.limit)
                if found.get(who, NOTHING).percent < percent:
                    found[who] = UsedShare(percent, rate, budget.limit, where)
            del high[-SLICE:]
            yield

    def _compare(
        self, found: dict[Who, UsedShare], new: list[tuple[Who, UsedShare]], now_ms: int
    ) -> Iterator[None]:
        """Continue the episodes with the usage in `found`. Put the entities that have reached a higher level
        into `new`.
        """
        for number, (who, episode) in enumerate(list(self._episodes.items()), start=1):
            used = found.pop(who, NOTHING)
            if episode.note(used, now_ms):
                new.append((who, used))
            elif not episode.level:
                del self._episodes[who]
            if not number % SLICE:
                yield
        yield from self._begin(found, new, now_ms)

    def _begin(
        self, found: dict[Who, UsedShare], new: list[tuple[Who, UsedShare]], now_ms: int
    ) -> Iterator[None]:
        """Begin episodes of the entities in `found`, those at the highest level first, as far as
        `FOLLOWED_MAX` allows. Put these entities into `new`.
        """
        room = FOLLOWED_MAX - len(self._episodes)
        reached: dict[int, list[tuple[Who, UsedShare]]] = {level: [] for level in (*LEVELS, 0)}
        for part in taken(found, SLICE):
            for who, used in part:
                at_level = reached[used.level]
                if len(at_level) < room:
                    at_level.append((who, used))
            yield
        chosen = islice(chain.from_iterable(reached[level] for level in reversed(LEVELS)), room)
        for begins in slices(chosen, SLICE):
            new += begins
            self._episodes |= {who: _HighUsage(used.level, now_ms) for who, used in begins}
            yield

    def _tell(self, who: Who, used: UsedShare) -> None:
        (key, tags), others = who, self._others
        self._told, self._others = self._told + 1, 0
        entry = self._scan.registry.in_force.entry_of(key, tags, shadow=self._shadow)
        event = UsageLevel(
            quota=key.value,
            **names(tags),
            entry=None if entry is None else str(entry),
            shadow=self._shadow,
            limit=finite(used.limit),
            level=used.level,
            rate=used.rate,
            broker=used.broker,
            others=others,
        )
        self._publish(event)
        log.info(
            "shadow quota usage" if self._shadow else "quota usage",
            quota=key.value,
            **{name: value for name, value in tags._asdict().items() if value},
            entry=event.entry,
            percent=used.level,
            rate=round(used.rate, 2),
            limit=event.limit,
            broker=used.broker,
        )

    def _begin_minute(self, now_ms: int) -> None:
        """Log the number of events that the minute before had no room for."""
        unlogged, self._unlogged, self._told, self._minute_ms = self._unlogged, 0, 0, now_ms
        if unlogged:
            log.info("quota usage of others", events=unlogged, shadow=self._shadow)


def _urgency(candidate: tuple[Who, UsedShare]) -> tuple[int, float]:
    return candidate[1].level, candidate[1].percent
