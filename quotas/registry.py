"""LimiterRegistry: the limiters of one quota key by their tags, with a bound on their number.

Clients can invent client-ids without end, so a registry holds at most `LIMITERS_MAX` limiters. A full
registry removes idle limiters: their former charges no longer count, and the waits that they caused are over.
Each new limiter does a part of the search: it selects idle limiters. `generation` grows once for all selected
ones, so connections that use one look it up again, and thereby keep it. New limiters replace the others. So
no client can erase its usage or its wait by filling the registry. While all limiters are in use, a new client
is charged to the overflow limiter of its user, which counts but has no limit. With a limit, the client would
wait because of the usage of other clients. This opens no new way around quotas, because a client that can
invent names to fill the registry can also get a new limiter at any time by inventing a name for itself.

A limiter that was not charged for an hour is removed too, once its waits are over.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from itertools import chain
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
"""Time (ms) between two growths of `generation` for room, because all connections then look up limiters."""
ROOM_MAX = LIMITERS_MAX // 10
"""Maximum number of idle limiters that are selected for removal at a time."""
EXAMINED_MAX = 8
"""Maximum number of limiters that are examined for one new limiter. Idle ones are found as fast as they are
needed if at least one of 8 is idle.
"""
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
        "_leaving",
        "_limiters",
        "_next_expiry_ms",
        "_next_room_ms",
        "_overflow",
        "_selected",
        "forgotten",
        "generation",
    )

    def __init__(self) -> None:
        # Ordered: the search begins with the first limiter and moves it behind the last. The first item of a
        # dict is found only behind the places of all items that were removed from its beginning.
        self._limiters: OrderedDict[Tags, A] = OrderedDict()
        self._selected: dict[Tags, None] = {}
        """Tags of idle limiters that connections may still use: they leave after `generation` has grown."""
        self._leaving: dict[Tags, None] = {}
        """Tags of idle limiters that nobody has looked up since `generation` has grown for them."""
        self._overflow: dict[Tags, A] = {}
        """Limiters, by their tags, that new clients share while the registry is full: one per user, and one
        for IP addresses.
        """
        self._next_expiry_ms: float = -math.inf
        """Time (ms) of the next search for limiters that were not charged for `IDLE_MS_MAX`: no limiter can
        reach that age earlier.
        """
        self._next_room_ms: float = -math.inf
        """Time (ms) from which `generation` may grow for room again."""
        self._has_overflowed = False
        """True if some clients may use overflow limiters, because there was no room for limiters of their own
        since `generation` has grown.
        """
        self.generation = 0
        """A number that grows when limiters that clients have looked up here may be outdated: a limiter was
        removed, or clients of an overflow limiter can now get a limiter of their own.
        """
        self.forgotten = LimiterTotals()
        """Sums of the counters of all limiters that were removed."""

    def get(self, tags: Tags) -> A | None:
        """Return the limiter with these tags; None if there is no such limiter. A limiter that was to leave
        stays, because the caller may use it until `generation` grows.
        """
        if self._leaving:
            self._leaving.pop(tags, None)
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
        """Return True if there is no room for another limiter. A full registry first removes a limiter that
        is idle, if its search has found one; this takes the same time however many limiters there are.
        """
        if len(self._limiters) < LIMITERS_MAX:
            return False
        self._select(now_ms, EXAMINED_MAX)
        if not self._leaving:
            self._let_leave(now_ms)
        if self._make_room(now_ms):
            return False
        self._has_overflowed = True
        return True

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

    def _select(self, now_ms: int, count: int) -> None:
        """Examine the next `count` limiters, and select those that are idle."""
        limiters, selected = self._limiters, self._selected
        for _ in range(min(count, len(limiters))):
            if len(selected) >= ROOM_MAX:
                return
            tags = next(iter(limiters))
            limiters.move_to_end(tags)
            if tags not in self._leaving and limiters[tags].is_idle(now_ms):
                selected[tags] = None

    def _let_leave(self, now_ms: int) -> None:
        """Let the selected limiters leave, and let `generation` grow, so that connections that use one of
        them look it up again.
        """
        if self._selected and now_ms >= self._next_room_ms:
            self._leaving, self._selected = self._selected, {}
            self._next_room_ms = float(now_ms + ROOM_PAUSE_MS)
            self._change()

    def _make_room(self, now_ms: int) -> bool:
        """Remove a limiter that is leaving; return False if none is. A response in flight may have
        charged one meanwhile, so that it is not idle any more: it stays.
        """
        for _ in range(min(EXAMINED_MAX, len(self._leaving))):
            tags, _none = self._leaving.popitem()
            if self._limiters[tags].is_idle(now_ms):
                self.forgotten.add(self._limiters.pop(tags))
                return True
        return False

    def _forget(self, gone: list[Tags]) -> None:
        for tags in gone:
            self.forgotten.add(self._limiters.pop(tags))
            self._selected.pop(tags, None)
            self._leaving.pop(tags, None)
        if gone:
            self._change()

    def _change(self) -> None:
        """Let `generation` grow, so that all connections look up their limiters."""
        self.generation += 1
        self._has_overflowed = False

    def _relieve(self, now_ms: int) -> Iterator[int]:
        """Let up to `ROOM_MAX` idle limiters of a full registry leave; yield 0 after each step."""
        for _ in range(0, len(self._limiters), SLICE):
            self._select(now_ms, SLICE)
            yield 0
        if not self._leaving:
            self._let_leave(now_ms)
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
