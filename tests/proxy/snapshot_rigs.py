"""Quotas, connections and a time that tests move, from which snapshots are read."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from tests.proxy.wire import new_connection
from tests.wire.frames import framed
from weir.proxy.connection.client import Client
from weir.proxy.connection.connection import Connection
from weir.proxy.control.peers import local_peers
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.scan import Scan
from weir.proxy.control.snapshots.history import History
from weir.proxy.control.snapshots.opened import ByteRates, OpenConnection
from weir.proxy.control.snapshots.preview import read_preview
from weir.proxy.control.snapshots.records import Preview
from weir.proxy.control.snapshots.sources import SnapshotSources
from weir.quotas import DEFAULT, Budget, Entity, QuotaKey, QuotaTable
from weir.quotas.storage import StorageBudgets
from weir.quotas.topic_counts import TopicCounts

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
ALICE = Entity("alice", "etl")
ANY_APP = Entity(client_id=DEFAULT)
T = TypeVar("T")


class OpenRelay:
    def __init__(self, connection: Connection, received: tuple[int, int] = (0, 0)) -> None:
        self.connection = connection
        self.received_bytes = received


class World:
    def __init__(self, entity: Entity = ALICE, rate: float = 1000.0, table: QuotaTable | None = None) -> None:
        self.registry = QuotaRegistry(table or QuotaTable({(entity, PRODUCE): rate}))
        self.relays: dict[Any, OpenConnection] = {}
        self.now_ms = 0
        self.history = History(Scan(self.registry))
        self.sources = SnapshotSources(
            self.registry,
            local_peers(self.clients, self.registry),
            lambda: self.now_ms,
            lambda: 1000.0,
            counts=TopicCounts(),
            storage=StorageBudgets(),
        )

    def clients(self) -> list[Client]:
        return [relay.connection.client for relay in self.relays]

    def budget(self, client_id: str = "etl", node_id: int = 2) -> Budget:
        budget = self.registry.of(node_id).ledger("alice", client_id, self.now_ms).produce
        assert isinstance(budget, Budget)
        return budget

    def connect(self, client_id: bytes = b"etl", peer: str = "10.0.0.7:5", library: str = "") -> Connection:
        """Open a connection of alice's at broker 2 that has sent a request."""
        connection = new_connection(quotas=self.registry.of(2), node_id=2)
        client = connection.client
        client.user, client.peer, client.software = "alice", peer, library
        head = framed(b"\0\0\0\0\0\0\0\0" + len(client_id).to_bytes(2, "big") + client_id)
        assert client.identify(bytearray(head), 0, len(head), self.now_ms) is not None
        relay = OpenRelay(connection, (30, 40))
        rates = ByteRates(self.now_ms)
        self.relays[relay] = OpenConnection(
            len(self.relays) + 1, "broker 2", 2, self.now_ms, tls=False, rates=rates
        )
        return connection

    def preview(self, entity: Entity, ops: dict[QuotaKey, float | None], *, shadow: bool = False) -> Preview:
        changes = {(entity, key): value for key, value in ops.items()}
        after = self.registry.table.altered(changes, shadow=shadow)
        return done(read_preview(self.sources, self.history, entity, list(ops), after, shadow=shadow))

    def look(self, seconds: Iterable[int]) -> None:
        """Let the history look once in each of these seconds."""
        for second in seconds:
            self.now_ms = 1000 * second
            for _step in self.history.look(self.now_ms):
                pass


def done(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
