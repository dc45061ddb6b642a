"""Turns of the threads that compute TLS handshakes. A thread computes one step of a handshake at a time, and
clients' addresses get threads in turn. So an address with a thousand clients delays another address by one
step only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import trio

T = TypeVar("T")

Waiting: TypeAlias = dict[str, deque[trio.Event]]


class HandshakeTurns:
    """The threads that compute handshakes, and the steps that wait for a thread, by the client's address."""

    def __init__(self, threads: int) -> None:
        """Begin with no steps. `threads` is the maximum number of steps that are computed at the same
        time.
        """
        self._limiter = trio.CapacityLimiter(threads)
        self._free = threads
        self._waiting: Waiting = {}
        """Steps that wait for a thread, by client's address; the addresses are in the order of their next
        turns.
        """

    async def run(self, host: str, step: Callable[[], T]) -> T:
        """Wait for a turn of the client's address `host`, then call `step` in a thread. Return its result, or
        raise its exception.
        """
        await self._begin(host)
        try:
            return await trio.to_thread.run_sync(step, limiter=self._limiter)
        finally:
            self._end()

    async def _begin(self, host: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn = trio.Event()
        self._waiting.setdefault(host, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self._end()
            else:
                self._forget(host, turn)
            raise

    def _forget(self, host: str, turn: trio.Event) -> None:
        waiting = self._waiting[host]
        waiting.remove(turn)
        if not waiting:
            del self._waiting[host]

    def _end(self) -> None:
        """Give the thread that is free now to the next address in line. That address goes to the end of the
        line if more of its steps wait.
        """
        if not self._waiting:
            self._free += 1
            return
        host = next(iter(self._waiting))
        waiting = self._waiting.pop(host)
        waiting.popleft().set()
        if waiting:
            self._waiting[host] = waiting
