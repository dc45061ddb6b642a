"""Questions of the supervisor that all workers answer: open connections, peers of entities, ended waits,
flushes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

import trio

from weir.proxy.control.peers import Peers, WantedPeers
from weir.proxy.control.release import end_waits
from weir.proxy.control.snapshots.connections import ConnectionFilter, merged, read_connections
from weir.proxy.control.snapshots.opened import OpenRelays
from weir.proxy.control.snapshots.records import Connections
from weir.proxy.control.snapshots.sources import SnapshotSources
from weir.proxy.control.supervisor import Works, stepwise
from weir.proxy.workers.messages import (
    ConnectionsListed,
    EndWaits,
    ListConnections,
    ListPeers,
    Message,
    PeersListed,
    WaitsEnded,
)

if TYPE_CHECKING:  # a worker starts without the supervisor's side
    from weir.proxy.workers.handle import Handle

WAIT_S: Final = 2.0
"""Time (s) within which workers must answer."""
SILENT_MS: Final = 2000
"""Time (ms) without a sign of life after which a worker is not asked."""
FLUSH_S: Final = 1.0
"""Time (s) within which workers must answer a `Flush`. A slower one keeps the charges of the last 0.25 s."""
QUESTIONS_MAX: Final = 8
"""Maximum number of questions that wait in a worker. The supervisor asks three at a time."""

A = TypeVar("A")
Question: TypeAlias = ListConnections | ListPeers | EndWaits


class Answerer:
    """The worker's side: answers one question after another."""

    def __init__(self, sources: SnapshotSources, relays: OpenRelays, post: Callable[[Message], None]) -> None:
        """Begin without a question. `relays` are the worker's, `post` sends a message to the supervisor."""
        self._sources = sources
        self._relays = relays
        self._post = post
        self._asked, self._questions = trio.open_memory_channel[Question](QUESTIONS_MAX)

    def take(self, asked: Question) -> None:
        """Answer soon. Further questions than `QUESTIONS_MAX` stay without an answer."""
        with suppress(trio.WouldBlock):
            self._asked.send_nowait(asked)

    async def run(self, works: Works) -> None:
        """Answer until cancelled; let other tasks run between the steps."""
        async for asked in self._questions:
            self._post(await self._answer(asked))
            works()

    async def _answer(self, asked: Question) -> Message:
        if isinstance(asked, ListPeers):
            return PeersListed(asked.number, await self._sources.read_peers(asked.wanted))
        if isinstance(asked, EndWaits):
            ended = await stepwise(end_waits(self._sources, self._relays, asked.filter))
            return WaitsEnded(asked.number, ended)
        return ConnectionsListed(
            asked.number, await stepwise(read_connections(self._sources, self._relays, asked.filter))
        )


@dataclass(slots=True)
class _Open(Generic[A]):
    """A question that is not answered by all workers yet."""

    answers: dict[int, A] = field(default_factory=dict)
    """Answers by worker."""
    changed: trio.Event = field(default_factory=trio.Event)


class Questions(Generic[A]):
    """The supervisor's side: asks all workers the same question."""

    def __init__(self, handles: Sequence[Handle], wait_s: float = WAIT_S) -> None:
        """Begin without a question. `wait_s` is the time (s) within which workers must answer."""
        self._handles = handles
        self._wait_s = wait_s
        self._number = 0
        """Number of the latest question."""
        self._open: dict[int, _Open[A]] = {}

    async def ask(self, question: Callable[[int], Message]) -> dict[int, A]:
        """Return the answers, by worker, of all workers that answer in time. `question` returns the message
        from its number.
        """
        self._number += 1
        number = self._number
        asked = [each for each in self._handles if each.alive and each.silent_ms < SILENT_MS]
        opened = self._open[number] = _Open()
        for handle in asked:
            handle.post(question(number))
        try:
            with trio.move_on_after(self._wait_s):
                while len(opened.answers) < len(asked):
                    opened.changed = trio.Event()
                    await opened.changed.wait()
        finally:
            del self._open[number]
        return opened.answers

    def take(self, worker: int, number: int, answer: A) -> None:
        """Take a worker's answer, unless it comes too late."""
        opened = self._open.get(number)
        if opened is not None:
            opened.answers[worker] = answer
            opened.changed.set()


class ConnectionLists:
    """Lists of the open connections of all workers."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self.questions: Questions[Connections] = Questions(handles)
        self._handles = handles

    async def read(self, wanted: ConnectionFilter) -> Connections:
        """Return the chosen connections of all workers that answer; those of the others count as hidden."""
        lists = await self.questions.ask(lambda number: ListConnections(number, wanted))
        silent = sum(each.connections for each in self._handles if each.number not in lists)
        return merged(list(lists.values()), wanted, silent)


class PeerLists:
    """Peers of entities at all workers."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self.questions: Questions[list[Peers]] = Questions(handles)

    async def read(self, wanted: WantedPeers) -> list[Peers]:
        """Return the peers of each entity, in the order of `wanted`, at all workers that answer."""
        found = [Peers() for _entity in wanted.entities]
        if not found:
            return found
        for answer in (await self.questions.ask(lambda number: ListPeers(number, wanted))).values():
            for peers, more in zip(found, answer, strict=False):
                peers.merge(more)
        return found
