"""One end of a worker's link without the other process: a worker, or the supervisor's pool, beside a test."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

from tests.kfake.cluster import HOST
from weir.proxy.config import config
from weir.proxy.config.config import checked
from weir.proxy.control.configured import quota_registry
from weir.proxy.control.stores.file import FileStore
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.net.drivers import monotonic_us, run_in_trio
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.server import Server
from weir.proxy.server.target import Target
from weir.proxy.workers.link import Link, LinkError
from weir.proxy.workers.messages import Listen, Message, Ready
from weir.proxy.workers.pool import Pool
from weir.proxy.workers.worker import Worker, of_worker
from weir.quotas import QuotaTable

M = TypeVar("M")
LONG_S = 60
"""No test takes longer, on however busy a machine."""
NUMBERED_FROM = 7 * 10**10


def link_pair() -> tuple[Link, Link]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Link(ours), Link(theirs)


class Heard:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.messages: list[Message] = []
        self.sockets: list[socket.socket] = []
        self._changed = trio.Event()

    async def receive(self) -> None:
        try:
            while True:
                message, socks = await self.link.receive()
                self.sockets += socks
                self.messages.append(message)
                self._changed.set()
        except LinkError:
            pass

    def of(self, kind: type[M]) -> list[M]:
        return [message for message in self.messages if isinstance(message, kind)]

    async def hear(self, kind: type[M], number: int = 1) -> list[M]:
        """Wait until this number of messages of a kind have arrived, and return them."""
        while len(found := self.of(kind)) < number:
            self._changed = trio.Event()
            await self._changed.wait()
        return found


class Rig(Heard):
    def __init__(self, options: dict[str, Any], table: QuotaTable) -> None:
        ours, theirs = link_pair()
        super().__init__(ours)
        self.reactor = Reactor(monotonic_us)
        settings = config.load(None, {"upstream": "127.0.0.1:1", **options}).settings
        given = checked(of_worker(settings))
        self.registry = quota_registry(given, table)
        self.worker = Worker(given, self.reactor, self.registry, theirs, NUMBERED_FROM)
        self._theirs = theirs
        self._listening: dict[Target, socket.socket] = {}

    async def run(self) -> None:
        try:
            await self.worker.run()
        except* LinkError:
            pass

    def close(self) -> None:
        self.link.close()
        self._theirs.close()
        for sock in self._listening.values():
            sock.close()
        self.worker.plane.close()
        self.reactor.close()

    def connect(self, target: Target) -> socket.socket:
        """Open a connection to the worker's listener of this target, which is opened before the first one."""
        if target not in self._listening:
            self._listening[target] = socket.create_server((HOST, 0))
            self._listening[target].setblocking(False)
            self.link.post(Listen(*target, 1), [self._listening[target]])
        client = socket.create_connection(self._listening[target].getsockname())
        client.setblocking(False)
        return client


@asynccontextmanager
async def running_worker(table: QuotaTable | None = None, **options: Any) -> AsyncIterator[Rig]:
    rig = Rig(options, table or QuotaTable())
    try:
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                for task in (rig.link.send_forever, rig.receive, rig.run):
                    nursery.start_soon(task)
                nursery.start_soon(run_in_trio, rig.reactor)
                await rig.hear(Ready)
                yield rig
                nursery.cancel_scope.cancel()
    finally:
        rig.close()


async def end_of(client: socket.socket) -> bytes:
    """Wait until the other end closes the connection; return all that arrives before."""
    received = b""
    while True:
        await trio.lowlevel.wait_readable(client)
        try:
            part = client.recv(65536)
        except ConnectionError:
            part = b""
        if not part:
            client.close()
            return received
        received += part


def new_pool(server: Server, number: int = 2) -> Pool:
    """A pool without processes, for a server that is not asked about quotas."""
    state = StoreHealth(lambda: 0.0)
    store = FileStore(None)
    manager = QuotaManager(store, server.quotas, QuotaTable(), frozenset(), state, server.supervisor)
    return Pool(server, manager, number, lambda _kind, _records: None)


def connect(pool: Pool) -> list[Heard]:
    ends = []
    for handle in pool.handles:
        ours, theirs = link_pair()
        handle._link = ours
        ends.append(Heard(theirs))
    return ends


def disconnect(pool: Pool, ends: list[Heard]) -> None:
    for handle, end in zip(pool.handles, ends, strict=True):
        assert handle._link is not None
        handle._link.close()
        end.link.close()
        for sock in end.sockets:
            sock.close()
