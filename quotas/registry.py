"""LimiterRegistry: the limiters of one quota key by their tags, with a bound on their number.

Clients can invent client-ids without end, so a registry holds at most `LIMITERS_MAX` limiters. A full
registry removes idle limiters: their former charges no longer count, and the waits that they caused are over.
So no client can erase its usage or its wait by filling the registry. While all limiters are in use, a new
client is charged to the overflow limiter of its user, which counts but has no limit: with a limit, the client
would wait because of the usage of other clients. This opens no new way around quotas, because a client that
can invent names to fill the registry can also get a new limiter at any time by inventing a name for itself.

A limiter that was not charged for an hour is removed too, once its waits are over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, TypeVar

from weir.quotas.limiters.limiter import Limiter
from weir.quotas.mutations import MutationBudget
from weir.quotas.table.entities import Tags

if TYPE_CHECKING:
    from collections.abc import Iterator

IDLE_MS_MAX = 3_600_000
"""Time (ms) for which a limiter is kept after its last charge: one hour, like Kafka's sensors."""
LIMITERS_MAX = 100_000
"""Maximum number of limiters per quota key and broker; this many take 100 to 200 MB."""
ROOM_PAUSE_MS = 1000
"""Time (ms) between two searches for idle limiters: a search of all of them takes tens of ms."""
ROOM_MAX = LIMITERS_MAX // 10
"""Maximum number of limiters that one search removes, because removing all takes up to a second."""
SLICE = 250
"""Number of limiters examined in one step, which takes at most a millisecond."""


@dataclass(slots=True)
class LimiterTotals:
    """Sums of the counters of several limiters."""

    charged: float = 0
    """Number of units charged."""
    throttled: int = 0
    """Number of requests (or connections) answered with a throttle time."""
    throttle_ms: int = 0
    """Sum of the throttle times (ms)."""
    refused: int = 0
    """Number of topics that mutation budgets have refused; 0 for other limiters."""

    def add(self, limiter: Limiter) -> None:
        self.charged += limiter.charged
        self.throttled += limiter.throttled
        self.throttle_ms += limiter.throttle_ms_total
        if isinstance(limiter, MutationBudget):
            self.refused += limiter.refused


A = TypeVar("A", bound=Limiter)


class LimiterRegistry(Generic[A]):
    """At most `LIMITERS_MAX` limiters by their tags, and the overflow limiters, which new clients share while
    the registry is full.
    """

    __slots__ = (
        "_has_overflowed",
        "_limiters",
        "_next_expiry_ms",
        "_next_room_ms",
        "_overflow",
        "forgotten",
        "generation",
    )

    def __init__(self) -> None:
        self._limiters: dict[Tags, A] = {}
        self._overflow: dict[Tags, A] = {}
        """Limiters, by their tags, that new clients share while the registry is full: one per user, and one
        for IP addresses.
        """
        self._next_expiry_ms: float = -math.inf
        """Time (ms) of the next search for limiters that were not charged for `IDLE_MS_MAX`: no limiter can
        reach that age earlier.
        """
        self._next_room_ms: float = -math.inf
        self._has_overflowed = False
        """True if the registry was full when a limiter was last to be added, so that some clients use
        overflow limiters.
        """
        self.generation = 0
        """A number that grows when limiters that clients have looked up here may be outdated: a limiter was
        removed, or clients of an overflow limiter can now get a limiter of their own.
        """
        self.forgotten = LimiterTotals()
        """Sums of the counters of all limiters that were removed."""

    def get(self, tags: Tags) -> A | None:
        """Return the limiter with these tags; None if there is no such limiter."""
        return self._limiters.get(tags)

    def put(self, limiter: A) -> None:
        """Add a limiter under its tags; replaces the former limiter with these tags."""
        self._limiters[limiter.tags] = limiter

    def overflow(self, tags: Tags) -> A | None:
        """Return the overflow limiter with these tags, which new clients share while the registry is full;
        None if no client has needed one.
        """
        return self._overflow.get(tags)

    def put_overflow(self, limiter: A) -> None:
        """Add an overflow limiter, which new clients share while the registry is full, under its tags."""
        self._overflow[limiter.tags] = limiter

    def is_full(self, now_ms: int) -> bool:
        """Return True if there is no room for another limiter. A full registry first removes idle limiters,
        the oldest first, unless it has searched for idle limiters within the last second.
        """
        if len(self._limiters) < LIMITERS_MAX:
            return False
        if now_ms >= self._next_room_ms:
            self._next_room_ms = float(now_ms + ROOM_PAUSE_MS)
            self._forget(list(islice(self._idle(now_ms), ROOM_MAX)))
        self._has_overflowed = not self._has_room()
        return self._has_overflowed

    def expire(self, now_ms: int) -> Iterator[int]:
        """Remove limiters that were not charged for an hour, in steps of about a millisecond. Yield after
        each step the number of limiters that the step removed. The registry may be used and changed between
        steps.
        """
        if self._has_overflowed and now_ms >= self._next_room_ms:
            yield from self._relieve(now_ms)
        if now_ms >= self._next_expiry_ms:
            yield from self._forget_unused(now_ms)

    def slices(self) -> Iterator[list[A]]:
        """Yield all limiters in lists of `SLICE`, the oldest first; limiters that are added after the first
        list are left out. A limiter may have been removed before its list is yielded: the caller checks
        `has`.
        """
        limiters = list(reversed(self._limiters.values()))
        while limiters:
            yield limiters[: -SLICE - 1 : -1]
            del limiters[-SLICE:]  # frees removed limiters step by step, too

    def has(self, limiter: Limiter) -> bool:
        """Return True if this limiter is in the registry, neither removed nor replaced."""
        return self._limiters.get(limiter.tags) is limiter

    def __len__(self) -> int:
        """Return the number of limiters, without overflow limiters (those that new clients share while the
        registry is full).
        """
        return len(self._limiters)

    def __iter__(self) -> Iterator[A]:
        """Return an iterator of the limiters; last the overflow limiters, which new clients share while the
        registry is full.
        """
        return chain(self._limiters.values(), self._overflow.values())

    def _idle(self, now_ms: int) -> Iterator[Tags]:
        for tags, limiter in self._limiters.items():
            if limiter.is_idle(now_ms):
                yield tags

    def _has_room(self) -> bool:
        """Return True if another limiter can be added. In that case, let `generation` grow if clients share
        overflow limiters, so that they look up limiters of their own.
        """
        if len(self._limiters) >= LIMITERS_MAX:
            return False
        if self._has_overflowed:
            self._has_overflowed = False
            self.generation += 1
        return True

    def _forget(self, gone: list[Tags]) -> None:
        for tags in gone:
            self.forgotten.add(self._limiters.pop(tags))
        if gone:
            self.generation += 1

    def _relieve(self, now_ms: int) -> Iterator[int]:
        """Remove up to `ROOM_MAX` idle limiters from a full registry; yield 0 after each step."""
        self._next_room_ms = float(now_ms + ROOM_PAUSE_MS)
        wanted = ROOM_MAX
        for limiters in self.slices():
            gone = [limiter.tags for limiter in limiters if limiter.is_idle(now_ms) and self.has(limiter)]
            self._forget(gone[:wanted])
            wanted -= len(gone)
            yield 0
            if wanted <= 0:
                break
        self._has_room()
        yield 0

    def _forget_unused(self, now_ms: int) -> Iterator[int]:
        last_ms, oldest_ms = now_ms - IDLE_MS_MAX, now_ms
        for limiters in self.slices():
            gone = [
                limiter.tags
                for limiter in limiters
                if limiter.charged_ms <= last_ms and limiter.is_idle(now_ms) and self.has(limiter)
            ]
            self._forget(gone)
            for limiter in limiters:
                if last_ms < limiter.charged_ms < oldest_ms:
                    oldest_ms = limiter.charged_ms
            yield len(gone)
        for tags, limiter in list(self._overflow.items()):
            if limiter.charged_ms <= last_ms:
                self.forgotten.add(self._overflow.pop(tags))
        self._next_expiry_ms = float(oldest_ms + IDLE_MS_MAX)
