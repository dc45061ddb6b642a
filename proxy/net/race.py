"""Attempts at alternatives: the first success counts ("happy eyeballs", RFC 8305, section 5).

A host may have addresses that drop packets: IPv6 without a route, a dead node behind a service's name. So
Weir does not wait for one address to fail before it tries the next one, and it remembers which were bad.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import trio

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
E = TypeVar("E", bound=Exception)

BAD_S: Final = 300.0
"""Time (s) for which an alternative that was bad is tried last."""
BAD_MAX: Final = 1000
"""Maximum number of bad alternatives that are remembered."""


class Race(Generic[K, T, E]):
    """Attempts at alternatives, each begun when the one before has failed or has taken `delay_s`."""

    def __init__(
        self,
        attempt: Callable[[K], Awaitable[T]],
        error: type[E],
        delay_s: float,
        discard: Callable[[T], object] = lambda _result: None,
    ) -> None:
        """Begin without attempts. `attempt` fails by raising `error`; other exceptions end the race, and are
        raised. `discard` closes a result that is not returned.
        """
        self._attempt = attempt
        self._error = error
        self._delay_s = delay_s
        self._discard = discard
        self.failures: dict[K, E] = {}
        """Errors of the attempts that have failed."""
        self.slow: list[K] = []
        """Alternatives whose attempts were cancelled after `delay_s` or later."""
        self._won: tuple[K, T] | None = None
        self._bug: Exception | None = None
        self._scope = trio.CancelScope()

    async def run(self, alternatives: Sequence[K]) -> tuple[K, T] | None:
        """Return the first alternative that succeeds, with its result; None if all fail. Call this once. The
        caller sets the time limit; `failures` and `slow` can be read after it, too.
        """
        try:
            with self._scope:
                await self._run(alternatives)
        except BaseException:
            if self._won is not None:
                self._discard(self._won[1])
            raise
        if self._bug is not None:
            raise self._bug
        return self._won

    async def _run(self, alternatives: Sequence[K]) -> None:
        if len(alternatives) == 1:  # a nursery costs more than most connections
            await self._try(alternatives[0], trio.Event(), trio.current_time())
            return
        async with trio.open_nursery() as nursery:
            for alternative in alternatives:
                failed = trio.Event()
                nursery.start_soon(self._try, alternative, failed, trio.current_time())
                with trio.move_on_after(self._delay_s):
                    await failed.wait()

    async def _try(self, alternative: K, failed: trio.Event, began_s: float) -> None:
        """Make an attempt. `began_s` is from before the wait for it: tasks may begin late."""
        try:
            result = await self._attempt(alternative)
        except self._error as error:
            self.failures[alternative] = error
            failed.set()
        except trio.Cancelled:
            if trio.current_time() - began_s >= self._delay_s:
                self.slow.append(alternative)
            raise
        except Exception as error:  # noqa: BLE001  # raised by `run`, outside of the nursery
            self._bug = error
            self._scope.cancel()
        else:
            if self._won is None and self._bug is None:
                self._won = alternative, result
                self._scope.cancel()
            else:  # two attempts have succeeded in one step of the loop
                self._discard(result)


class BadAlternatives(Generic[K]):
    """The alternatives that have failed, or were slow, in the last `BAD_S`."""

    def __init__(self, key: Callable[[K], Hashable] = lambda alternative: alternative) -> None:
        """Begin without bad ones. Alternatives with the same `key` count as one; by default equal ones do."""
        self._key = key
        self._bad_s: dict[Hashable, float] = {}
        """Time (s) at which each was bad, by its key, the oldest first."""

    def last(self, alternatives: Iterable[K], now_s: float) -> list[K]:
        """Return the alternatives in the same order, but those that were bad at the end, the latest last."""

        def bad_s(alternative: K) -> float:
            at_s = self._bad_s.get(self._key(alternative), -math.inf)
            return at_s if now_s - at_s < BAD_S else -math.inf

        return sorted(alternatives, key=bad_s)

    def note(self, race: Race[K, T, E], won: tuple[K, T] | None, now_s: float) -> None:
        """Record the result of a race."""
        for key in map(self._key, [*race.failures, *race.slow]):
            self._bad_s.pop(key, None)
            self._bad_s[key] = now_s
        if won is not None:
            self._bad_s.pop(self._key(won[0]), None)
        while len(self._bad_s) > BAD_MAX:
            del self._bad_s[next(iter(self._bad_s))]
