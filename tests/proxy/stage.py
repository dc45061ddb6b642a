"""A whole server between real sockets, in front of fake brokers: where tests of the server play."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST, Cluster
from tests.kfake.in_trio import Connection, serve
from tests.wire.frames import body_of, request, response
from weir.protocol.messages import HeartbeatRequest, HeartbeatResponse, MetadataRequest, MetadataResponse
from weir.proxy.addresses import Address
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config import config
from weir.proxy.control.configured import quota_registry
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.file import FileStore
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.net.drivers import run_in_trio
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.data_plane import DataPlane
from weir.proxy.server.server import Server
from weir.proxy.workers.local import LocalWorkers
from weir.proxy.workers.pool import Pool
from weir.quotas import QuotaTable

METADATA = request(MetadataRequest(topics=None), 9)
PING, PONG = request(HeartbeatRequest(), 4), response(HeartbeatResponse(), 4)
LONG_S = 60
"""No test takes so long, on however busy a machine."""


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # the server has no event for each of its integers
        await trio.sleep(0.005)


@dataclass
class Stage:
    server: Server
    pool: Pool
    local: LocalWorkers
    cluster: Cluster
    nursery: trio.Nursery
    first_port: int
    brokers: dict[int, trio.CancelScope]
    clients: list[Connection] = field(default_factory=list)

    @property
    def plane(self) -> DataPlane:
        """The connections of the worker, with its own counters: the server's are up to a second older."""
        return self.local.started[0].plane

    @property
    def quotas(self) -> QuotaRegistry:
        """The worker's limiters."""
        return self.local.started[0].registry

    async def connect(self, node_id: int | None = None) -> Connection:
        port = self.first_port if node_id is None else self.first_port + 1 + node_id
        self.clients.append(Connection(await trio.open_tcp_stream(HOST, port)))
        return self.clients[-1]

    async def connect_tls(
        self, context: ssl.SSLContext, name: str | None = HOST, node_id: int | None = None
    ) -> Connection:
        """A client that speaks TLS and calls the server by this name; the handshake is done."""
        port = self.first_port if node_id is None else self.first_port + 1 + node_id
        plain = await trio.open_tcp_stream(HOST, port)
        stream = trio.SSLStream(plain, context, server_hostname=name, https_compatible=True)
        self.clients.append(Connection(stream))
        await stream.do_handshake()
        return self.clients[-1]

    async def told(self) -> dict[int, Address]:
        client = await self.connect()
        answer = await client.ask(METADATA)
        await client.stream.aclose()
        assert answer is not None
        return {b.node_id: Address(b.host, b.port) for b in body_of(answer, MetadataResponse, 9).brokers}

    def port(self, node_id: int) -> Address:
        return Address(HOST, self.first_port + 1 + node_id)

    async def closed(self, reason: CloseReason, times: int = 1) -> None:
        await until(lambda: self.plane.counters.closed[reason] >= times)


Script = Callable[[Stage], Awaitable[None]]
"""What a test does on it."""


def local_pool(
    server: Server, nursery: trio.Nursery, reactor: Reactor, manager: QuotaManager | None = None
) -> tuple[Pool, LocalWorkers]:
    """Start the pool of a server with one worker in this process."""
    if manager is None:
        health = StoreHealth(lambda: 0.0)
        table = server.quotas.table
        manager = QuotaManager(
            FileStore(None), server.quotas, table, server.config.admins, health, server.supervisor
        )
    local = LocalWorkers(nursery, reactor)
    pool = Pool(server, manager, 1, lambda _kind, _records: None, spawn=local)
    nursery.start_soon(pool.run)
    return pool, local


async def set_stage(
    reactor: Reactor, script: Script | None, brokers: tuple[int, ...], options: dict[str, Any], *, drive: bool
) -> None:
    with trio.fail_after(LONG_S):
        async with trio.open_nursery() as nursery:
            if drive:
                nursery.start_soon(run_in_trio, reactor)
            cluster: Cluster = options.pop("cluster", None) or Cluster()
            scopes = {node_id: await nursery.start(serve, cluster, node_id) for node_id in brokers}
            first_port = options.pop("first_port", None) or free_range(12)
            table = options.pop("table", QuotaTable())
            upstream = ",".join(map(str, cluster.nodes.values())) or f"{HOST}:1"
            given = {
                "upstream": upstream,
                "listen": f"{HOST}:{first_port}",
                "broker_ports": f"{first_port + 1}-{first_port + 10}",
                **options,
            }
            timeout_s = given.pop("connect_timeout_s", config.CONNECT_TIMEOUT_S)
            loaded = msgspec.structs.replace(config.load(None, given), connect_timeout_s=timeout_s)
            server = Server(
                loaded, quota_registry(loaded, table), clock_ms=lambda: reactor.present_us() // 1000
            )
            pool, local = local_pool(server, nursery, reactor)
            await nursery.start(server.serve, pool)
            assert script is not None, "the server should not have started"
            stage = Stage(server, pool, local, cluster, nursery, first_port, scopes)
            try:
                await script(stage)
            finally:
                with trio.CancelScope(shield=True):
                    for client in stage.clients:
                        await trio.aclose_forcefully(client.stream)
            nursery.cancel_scope.cancel()


Play = Callable[..., None]
"""(script, brokers=(0,), **options of the configuration): runs it."""
