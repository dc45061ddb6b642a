"""The supervisor waits until its workers have told everything that clients have used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from weir.proxy.workers.handle import Handle
from weir.proxy.workers.messages import Flush

FLUSH_S: Final = 1.0
"""Time (s) within which workers must answer. Slower ones keep what clients have used in the last 0.25 s."""


class Flushes:
    """Asks all workers, one request at a time."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        """Begin without a request."""
        self._handles = handles
        self._number = 0
        """Number of the present request."""
        self._silent: set[int] = set()
        """Numbers of the workers that have not answered the present request."""
        self._answered = trio.Event()
        self._turn = trio.Lock()

    async def wait(self) -> None:
        """Wait for the answers of all workers that run, for at most `FLUSH_S`."""
        async with self._turn:
            self._number += 1
            self._silent = {handle.number for handle in self._handles if handle.alive}
            self._answered = trio.Event()
            for handle in self._handles:
                handle.post(Flush(self._number))
            if self._silent:
                with trio.move_on_after(FLUSH_S):
                    await self._answered.wait()

    def take(self, worker: int, number: int) -> None:
        """Take a worker's answer, unless it comes too late."""
        if number == self._number:
            self._silent.discard(worker)
            if not self._silent:
                self._answered.set()
