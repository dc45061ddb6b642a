"""The rates of the last ten minutes, and the throttling, of the entities that use their quotas most.

Once a second a task notes the rate of each tracked entity (`look`), in steps. At most `TRACKED_MAX` entities
are tracked: those that are throttled first, then those with the highest usage (rate divided by limit). They
are chosen among all entities after each round of scans (`scan`), and an entity that begins to be throttled is
tracked within a second. 1,000 entities take 3 MB: a rate is a float of four bytes.

Throttling of an entity *begins* with its first throttle after `QUIET_MS` without one: at its quota, a client
is throttled again and again, with short pauses.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator
from heapq import nlargest
from typing import Final, NamedTuple

from weir.proxy.control.budgets import Counted, usage_of
from weir.proxy.control.scan import KEPT_MS, LISTED_MAX, BudgetUsage, Scan
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.records import Where
from weir.proxy.control.throttled import QUIET_MS
from weir.quotas import QuotaKey, Tags

PERIOD_S: Final = 1.0
"""Time (s) between two rates of an entity."""
SECONDS: Final = KEPT_MS // 1000
"""Number of rates kept for each entity."""
GROUP: Final = 10
"""Number of rates for which `Track.history` has one number, their mean."""
TRACKED_MAX: Final = LISTED_MAX
MARKS: Final = 6
"""Number of intervals of `GROUP` seconds in the minute for which `Track.waited_ms` counts throttle times."""
SLICE: Final = 250
"""Number of entities processed in one step, which takes at most a millisecond."""
_NAN: Final = math.nan


class Key(NamedTuple):
    """Name of a budget: its quota, the clients that share it, its broker, and True for a shadow budget."""

    quota: QuotaKey
    tags: Tags
    where: Where
    shadow: bool


class TrackCandidate(NamedTuple):
    """A budget that may be tracked."""

    usage: float
    """Rate divided by the limit; infinite if the budget was throttled within `QUIET_MS`."""
    budget: Counted


class Track:
    """The rates and throttles of one entity."""

    __slots__ = ("_marks", "_rates", "_second", "began_ms", "budget", "held_second", "key")

    def __init__(self, key: Key, budget: Counted, second: int) -> None:
        """Begin without rates; the next one is that of `second`."""
        self.key = key
        self.budget = budget
        self._rates = array("f", [_NAN]) * SECONDS
        self._second = second - 1
        self._marks: deque[int] = deque(maxlen=MARKS + 1)
        self.began_ms: int | None = None
        """Time (ms) at which throttling began; None if the entity is not throttled."""
        self.held_second: int | None = None
        """Latest second in which a throttle held the entity back; None if no throttle did."""

    def note(self, second: int, now_ms: int) -> None:
        """Note the rate in this second, and whether the entity is throttled."""
        missed = min(second - self._second, SECONDS)
        for earlier in range(second - missed + 1, second):
            self._rates[earlier % SECONDS] = _NAN
        self._rates[second % SECONDS] = self.budget.rate(now_ms)
        if not self._marks or second // GROUP != self._second // GROUP:
            self._marks.append(self._total_ms(now_ms))
        self._second = second
        if not throttled_lately(self.budget, now_ms):
            self.began_ms = None
        elif self.began_ms is None:
            self.began_ms = now_ms
        if self.budget.throttled and self.budget.throttled_until_ms > now_ms - 1000 * PERIOD_S:
            self.held_second = second

    def _total_ms(self, now_ms: int) -> int:
        """Return the sum of the throttle times; at the first call without the one that lasts."""
        budget = self.budget
        lasts_ms = max(budget.throttled_until_ms - now_ms, 0) if budget.throttled and not self._marks else 0
        return max(budget.throttle_ms_total - lasts_ms, 0)

    def waited_ms(self) -> int:
        """Return the sum of the throttle times (ms) of about the last minute."""
        return max(self.budget.throttle_ms_total - self._marks[0], 0) if self._marks else 0

    def rates(self) -> array[float]:
        """Return the rates of the last `SECONDS` seconds, the oldest first; NaN for a second without one."""
        start = (self._second + 1) % SECONDS
        return self._rates[start:] + self._rates[:start]

    def history(self) -> tuple[float | None, ...]:
        """Return the mean rates of each `GROUP` seconds of the last `SECONDS`, the oldest first; None for
        a time without rates.
        """
        return means(self.rates())

    def was_held(self) -> bool:
        """Return True if a throttle held the entity back within the last `SECONDS` seconds."""
        return self.held_second is not None and self._second - self.held_second < SECONDS


def throttled_lately(budget: Counted, now_ms: int) -> bool:
    """Return True if the budget is throttled, or was within `QUIET_MS`."""
    return budget.throttled > 0 and budget.throttled_until_ms > now_ms - QUIET_MS


def is_throttled(budget: Counted, now_ms: int) -> bool:
    """Return True if a throttle time of the budget is not over."""
    return budget.throttled > 0 and budget.throttled_until_ms > now_ms


class History:
    """The tracked entities of a process."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._number = self._rounds = 0
        """Numbers of the latest scan and of the latest round that this history has used."""
        self._tracks: dict[Key, Track] = {}

    def track(self, key: Key) -> Track | None:
        """Return the track of an entity; None if it is not tracked."""
        return self._tracks.get(key)

    def tracks(self) -> list[Track]:
        return list(self._tracks.values())

    def throttled_now(self, now_ms: int) -> list[Key]:
        """Return the entities that enforced quotas throttle now, once for each quota and broker."""
        return [
            key
            for key, track in self._tracks.items()
            if not key.shadow and is_throttled(track.budget, now_ms)
        ]

    def look(self, now_ms: int) -> Iterator[None]:
        """Note the rates of this second; choose the entities to track, if that is due. Yield between steps of
        at most a millisecond.
        """
        scan, second = self._scan, now_ms // 1000
        yield from scan.look(self._number, now_ms)
        yield from scan.look_around(0, now_ms)
        self._number = scan.number
        if scan.rounds > self._rounds:
            self._rounds = scan.rounds
            yield from self._choose(second, now_ms)
        else:
            yield from self._add_throttled(second)
        for part in slices(self.tracks(), SLICE):
            for track in part:
                track.note(second, now_ms)
            yield

    def _choose(self, second: int, now_ms: int) -> Iterator[None]:
        """Track the entities that are throttled, then those with the highest usage; keep the tracks of these
        entities only.
        """
        found: dict[Key, TrackCandidate] = {}
        for tracks in slices(self.tracks(), SLICE):
            found |= {
                track.key: _of(track.budget, now_ms) for track in tracks if _is_kept(track.budget, now_ms)
            }
            yield
        for most in slices(self._scan.most_used, SLICE):
            found |= {_key(used): TrackCandidate(used.usage, used.budget) for used in most}
            yield
        for throttled in slices(self._scan.throttled, SLICE):
            found |= {_key(used): TrackCandidate(used.usage, used.budget) for used in throttled}
            yield
        best = nlargest(TRACKED_MAX, found.items(), key=lambda item: item[1].usage)
        yield
        before = self._tracks
        self._tracks = {
            key: before.get(key) or Track(key, candidate.budget, second) for key, candidate in best
        }
        for key, candidate in best:
            self._tracks[key].budget = candidate.budget

    def _add_throttled(self, second: int) -> Iterator[None]:
        """Track the entities that are throttled; those that are not make room."""
        for throttled in slices(self._scan.throttled, SLICE):
            for used in throttled:
                key = _key(used)
                track = self._tracks.get(key)
                if track is not None:
                    track.budget = used.budget
                elif len(self._tracks) < TRACKED_MAX or self._make_room():
                    self._tracks[key] = Track(key, used.budget, second)
                else:
                    return
            yield

    def _make_room(self) -> bool:
        """Remove an entity that is not throttled; return False if all are."""
        calm = next((key for key, track in self._tracks.items() if track.began_ms is None), None)
        if calm is None:
            return False
        del self._tracks[calm]
        return True


def _key(used: BudgetUsage) -> Key:
    return Key(used.quota, used.budget.tags, used.where, used.shadow)


def _is_kept(budget: Counted, now_ms: int) -> bool:
    return budget.charged_ms > now_ms - KEPT_MS or throttled_lately(budget, now_ms)


def _of(budget: Counted, now_ms: int) -> TrackCandidate:
    if throttled_lately(budget, now_ms):
        return TrackCandidate(math.inf, budget)
    return TrackCandidate(usage_of(budget.rate(now_ms), budget.limit), budget)


def means(rates: array[float]) -> tuple[float | None, ...]:
    """Return the means of each `GROUP` of these rates; None for a time without rates."""
    return tuple(_mean(rates[start : start + GROUP]) for start in range(0, len(rates), GROUP))


def _mean(rates: array[float]) -> float | None:
    known = [rate for rate in rates if rate == rate]  # NaN differs from itself
    return round(sum(known) / len(known), 2) if known else None
