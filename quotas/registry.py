"""LimiterRegistry: the limiters of one quota key, by the tags of the clients that share each of them.

Clients can invent client-ids without end, so a registry holds at most `LIMITERS_MAX` limiters. A full one
forgets limiters that are idle: nothing that was charged counts any more, and no wait is left. So no client
gets rid of what it has used, or of a wait, by filling the registry. While all are in use, a newcomer is
charged to the overflow limiter of its user, which counts and makes nobody wait: a newcomer that waited would
wait for what strangers have used. Nothing is lost by that: a client that can invent names for strangers can
have a fresh limiter for itself at any time.

A limiter that was not charged for an hour, and for which nobody waits, is forgotten too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from quotas.limiters.limiter import Limiter
from quotas.mutations import MutationBudget
from quotas.table.entities import Tags

if TYPE_CHECKING:
    from collections.abc import Iterator

IDLE_MS_MAX = 3_600_000
"""Time (ms) that a limiter is kept after its last charge: one hour, as Kafka keeps its sensors."""
LIMITERS_MAX = 100_000
"""Number of limiters per quota key and broker: 100 to 200 MB."""
ROOM_PAUSE_MS = 1000
"""Time (ms) between two searches for idle limiters: a search of all of them takes tens of ms."""
ROOM_MAX = LIMITERS_MAX // 10
"""Number of limiters that one search forgets: all of them would take up to a second."""
SLICE = 250
"""Number of limiters to look at in one step: at most a millisecond's work."""


@dataclass(slots=True)
class Totals:
    """Sums of what several limiters have counted."""

    charged: float = 0
    throttled: int = 0
    throttle_ms: int = 0
    refused: int = 0
    """Number of topics that mutation budgets have refused; nothing else is refused."""

    def add(self, limiter: Limiter) -> None:
        """Count one more limiter."""
        self.charged += limiter.charged
        self.throttled += limiter.throttled
        self.throttle_ms += limiter.throttle_ms_total
        if isinstance(limiter, MutationBudget):
            self.refused += limiter.refused


A = TypeVar("A", bound=Limiter)


class LimiterRegistry(Generic[A]):
    """Limiters by their tags, as many as there is room for."""

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
        """Begin without limiters."""
        self._limiters: dict[Tags, A] = {}
        self._overflow: dict[Tags, A] = {}
        """Overflow limiters: one per user, and one for addresses."""
        self._next_expiry_ms: float = -math.inf
        """Time (ms) before which no limiter can have been idle for long enough."""
        self._next_room_ms: float = -math.inf
        self._has_overflowed = False
        """True if clients were given overflow limiters since there was room last."""
        self.generation = 0
        """Grows when a limiter that was looked up may no longer be the right one."""
        self.forgotten = Totals()
        """The counts of the forgotten limiters."""

    def get(self, tags: Tags) -> A | None:
        """Return the limiter of those who share `tags`, if it is known."""
        return self._limiters.get(tags)

    def put(self, limiter: A) -> None:
        """Keep a limiter under its tags, in place of another one if there is one."""
        self._limiters[limiter.tags] = limiter

    def overflow(self, tags: Tags) -> A | None:
        """Return the overflow limiter with these tags, if there is one."""
        return self._overflow.get(tags)

    def put_overflow(self, limiter: A) -> None:
        """Keep an overflow limiter under its tags."""
        self._overflow[limiter.tags] = limiter

    def is_full(self, now_ms: int) -> bool:
        """Return True if there is no room for one limiter more. Idle limiters are forgotten first, the oldest
        first, if that was not tried within the last second.
        """
        if len(self._limiters) < LIMITERS_MAX:
            return False
        if now_ms >= self._next_room_ms:
            self._next_room_ms = float(now_ms + ROOM_PAUSE_MS)
            self._forget(list(islice(self._idle(now_ms), ROOM_MAX)))
        self._has_overflowed = not self._has_room()
        return self._has_overflowed

    def expire(self, now_ms: int) -> Iterator[int]:
        """Forget limiters that were not charged for an hour; yield after each step the number forgotten.

        Between two steps, of about a millisecond each, the registry may be used and changed.
        """
        if self._has_overflowed and now_ms >= self._next_room_ms:
            yield from self._relieve(now_ms)
        if now_ms >= self._next_expiry_ms:
            yield from self._forget_unused(now_ms)

    def slices(self) -> Iterator[list[A]]:
        """Yield today's limiters, the oldest first, a slice at a time; some may be forgotten before their
        turn.
        """
        limiters = list(reversed(self._limiters.values()))
        while limiters:
            yield limiters[: -SLICE - 1 : -1]
            del limiters[-SLICE:]  # frees forgotten limiters step by step, too

    def has(self, limiter: Limiter) -> bool:
        """Return True if the limiter was not forgotten, or replaced, meanwhile."""
        return self._limiters.get(limiter.tags) is limiter

    def __len__(self) -> int:
        """Return the number of limiters, without those of the overflow."""
        return len(self._limiters)

    def __iter__(self) -> Iterator[A]:
        """Yield the limiters, and then those of the overflow."""
        yield from self._limiters.values()
        yield from self._overflow.values()

    def _idle(self, now_ms: int) -> Iterator[Tags]:
        for tags, limiter in self._limiters.items():
            if limiter.is_idle(now_ms):
                yield tags

    def _has_room(self) -> bool:
        """Return True if there is room; then clients of the overflow look for limiters of their own."""
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
        """Search for idle limiters as `is_full` does, in steps."""
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
