"""Lists of open connections: each worker lists its own, the supervisor merges the lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

from weir.proxy.control.snapshots.connections import ConnectionFilter, merged, read_connections
from weir.proxy.control.snapshots.records import Connections
from weir.proxy.control.snapshots.sources import Sources
from weir.proxy.control.supervisor import Works
from weir.proxy.workers.handle import Handle
from weir.proxy.workers.messages import ListConnections, Listed, Message

WAIT_S: Final = 2.0
"""Time (s) within which workers must answer; the connections of slower ones are counted, not listed."""


class ConnectionLister:
    """The worker's side: lists its connections when the supervisor asks."""

    def __init__(self, sources: Sources, post: Callable[[Message], None]) -> None:
        """Begin without a request. `post` sends a message to the supervisor."""
        self._sources = sources
        self._post = post
        self._wanted, self._requests = trio.open_memory_channel[ListConnections](1)

    def take(self, wanted: ListConnections) -> None:
        """List the connections soon. While a list is being made, only one further request waits."""
        with suppress(trio.WouldBlock):
            self._wanted.send_nowait(wanted)

    async def run(self, works: Works) -> None:
        """Make the lists that are asked for, until cancelled; let other tasks run between the steps."""
        async for wanted in self._requests:
            steps = read_connections(self._sources, wanted.filter)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    self._post(Listed(wanted.number, end.value))
                    break
                await trio.lowlevel.checkpoint()
            works()


class ConnectionLists:
    """The supervisor's side: asks all workers, one request at a time."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        """Begin without a request."""
        self._handles = handles
        self._number = 0
        """Number of the present request."""
        self._lists: dict[int, Connections] = {}
        """Answers to the present request, by worker."""
        self._changed = trio.Event()
        self._reading = trio.Lock()

    async def read(self, wanted: ConnectionFilter) -> Connections:
        """Return the chosen connections of all workers that answer within `WAIT_S`."""
        async with self._reading:
            self._number += 1
            self._lists = {}
            asked = [handle for handle in self._handles if handle.alive]
            for handle in asked:
                handle.post(ListConnections(self._number, wanted))
            with trio.move_on_after(WAIT_S):
                while len(self._lists) < len(asked):
                    self._changed = trio.Event()
                    await self._changed.wait()
            silent = sum(each.connections for each in self._handles if each.number not in self._lists)
            return merged(list(self._lists.values()), wanted, silent)

    def take(self, worker: int, listed: Listed) -> None:
        """Take a worker's answer, unless it comes too late."""
        if listed.number == self._number:
            self._lists[worker] = listed.connections
            self._changed.set()
