"""A supervisor whose log lines are written at once, each of them; and one without workers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from weir.proxy.control.peers import Peers, WantedPeers
from weir.proxy.control.snapshots.connections import ConnectionFilter
from weir.proxy.control.snapshots.records import Connections, WorkerRecord
from weir.proxy.control.supervisor import Supervisor
from weir.proxy.counters import Counters
from weir.proxy.logs import Write


def supervisor(counters: Counters | None = None) -> Supervisor:
    return Supervisor(counters or Counters(), _write)


def _write(_kind: Hashable, write: Write, details: Mapping[str, object]) -> None:
    write(1, details)


class NoWorkers:
    """The workers of a supervisor that has none, and no clients; a test may set their states."""

    def __init__(self, *workers: WorkerRecord) -> None:
        self.workers = workers

    async def begin(self) -> None: ...

    async def flush(self) -> None: ...

    async def drain(self) -> None: ...

    def records(self) -> tuple[WorkerRecord, ...]:
        return self.workers

    async def list_connections(self, wanted: ConnectionFilter) -> Connections:
        del wanted
        return Connections(now_ms=0, hidden=0, connections=())

    async def end_waits(self, wanted: ConnectionFilter) -> int:
        del wanted
        return 0

    async def read_peers(self, wanted: WantedPeers) -> list[Peers]:
        return [Peers() for _entity in wanted.entities]
