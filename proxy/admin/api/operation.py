"""Operations of the API: a method of a path with typed parameters, body and result."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
import trio

from weir.proxy.admin.metrics import Sources as Sources
from weir.proxy.admin.places import ShortQueue
from weir.proxy.admin.readiness import Readiness
from weir.proxy.control.snapshots.history import History
from weir.proxy.control.snapshots.sources import SnapshotSources
from weir.proxy.control.snapshots.traffic import TrafficRates
from weir.proxy.control.supervisor import stepwise

if TYPE_CHECKING:
    from weir.proxy.server.server import Server

WHO: Final = "admin-token"
"""Name of the principal in the audit log of changes."""
BODY_BYTES_MAX: Final = 64 * 1024
"""Maximum length (bytes) of a request's body."""
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


@dataclass(frozen=True)
class ApiState:
    """The objects that operations read, shared by all requests."""

    sources: Sources
    readiness: Readiness
    snapshots: SnapshotSources
    history: History
    traffic: TrafficRates
    reading: ShortQueue = field(default_factory=ShortQueue)
    """Lock of the reading of large lists: one list at a time, so that memory is bounded."""
    started_s: float = field(default_factory=time.time)
    """Unix time (s) at which this Weir has started."""
    has_token: bool = False
    """True if a token is configured, so that changes are possible."""

    @property
    def server(self) -> Server:
        return self.sources.server

    async def read(self, steps: Generator[None, None, T]) -> T:
        """Return the result of a generator; sockets are served at each of its steps."""
        async with self.reading:
            return await stepwise(steps)

    async def compute(self, function: Callable[[], T]) -> T:
        """Return the result of a function that takes long for a large quota table; it runs in a thread."""
        async with self.reading:
            return await trio.to_thread.run_sync(function)


@dataclass(frozen=True)
class Call:
    """One request, checked."""

    state: ApiState
    query: msgspec.Struct
    """Parameters, of the operation's type `query`."""
    body: msgspec.Struct | None
    """Body, of the operation's type `body`; None if the operation has none."""
    peer: str
    """Address of the client."""

    def query_of(self, kind: type[S]) -> S:
        """Return the parameters; `kind` is the operation's type `query`."""
        assert isinstance(self.query, kind)
        return self.query

    def body_of(self, kind: type[S]) -> S:
        """Return the body; `kind` is the operation's type `body`."""
        assert isinstance(self.body, kind)
        return self.body


@dataclass(frozen=True)
class Operation:
    """A method of a path."""

    method: Literal["GET", "POST"]
    path: str
    summary: str
    result: type[msgspec.Struct]
    answer: Callable[[Call], Awaitable[msgspec.Struct]]
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    changes: bool = False
    """True if the operation needs the token everywhere."""


def state_of(sources: Sources, readiness: Readiness) -> ApiState:
    """Return the state for these sources, with an empty history. Readiness and traffic become sources of
    conditions.
    """
    server = sources.server
    server.health.sources.insert(0, readiness.conditions)
    traffic = TrafficRates(server.counters, server.gauges)
    server.health.sources.append(lambda: traffic.conditions(sources.now_ms()))
    return ApiState(
        sources,
        readiness,
        SnapshotSources(
            sources.quota_registry,
            sources.workers.read_peers,
            sources.now_ms,
            counts=server.topic_counter.counts,
            storage=server.storage_reader.budgets,
        ),
        History(server.scan),
        traffic,
        has_token=server.config.admin_access.token_file is not None,
    )
