"""A server with its admin endpoint, beside a fake cluster, and requests to the endpoint."""

from __future__ import annotations

import http.client
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import trio

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST, Cluster
from tests.kfake.in_trio import serve
from tests.proxy.stage import LONG_S, local_pool, until
from tests.wire.frames import request
from weir.protocol.messages import ProduceRequest
from weir.proxy.addresses import Address
from weir.proxy.admin.access import AccessControl, Token
from weir.proxy.admin.api.operation import ApiState, state_of
from weir.proxy.admin.endpoint import Endpoint, application, listen
from weir.proxy.admin.metrics import Sources
from weir.proxy.admin.readiness import Readiness
from weir.proxy.admin.refusals import Refusals
from weir.proxy.config import config
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.file import FileStore
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.control.supervisor import in_steps
from weir.proxy.net.drivers import monotonic_us, run_hosting_trio
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.problems import Problems, watch_outages
from weir.proxy.server.server import Server
from weir.proxy.workers.local import LocalWorkers
from weir.proxy.workers.pool import Pool


async def get(port: int, path: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    return await asked(port, "GET", path, headers)


async def asked(
    port: int, method: str, path: str, headers: dict[str, str], body: bytes | None = None
) -> tuple[int, bytes, http.client.HTTPMessage]:
    def ask() -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(HOST, port, timeout=LONG_S)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    return await trio.to_thread.run_sync(ask)


def produce(client_id: str) -> bytes:
    topic, partition = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
    data = topic(name="t", partition_data=[partition(index=0, records=bytes(40_000))])
    return request(ProduceRequest(acks=1, topic_data=[data]), 8, client_id=client_id.encode())


@dataclass
class Stage:
    """A server that was not started yet, its endpoint, and a fake cluster."""

    server: Server
    pool: Pool
    local: LocalWorkers
    state: ApiState
    cluster: Cluster
    broker: trio.CancelScope
    nursery: trio.Nursery
    admin: int
    clients: int
    listening: trio.Event

    async def start(self) -> None:
        await self.nursery.start(self.server.serve, self.pool)
        self.listening.set()

    async def reported(self) -> None:
        """Wait until the worker has told the supervisor of its present connections and their bytes."""
        plane, server = self.local.started[0].plane, self.server

        def is_told() -> bool:
            received = sum(relay.received_bytes[1] for relay in plane.relays)
            received += plane.counters.bytes_from_brokers.total()
            told = server.counters.sessions_open, server.gauges.connections.total()
            return {len(plane.relays)} == set(told) and received == server.counters.bytes_from_brokers.total()

        await until(is_told)

    async def ready(self) -> tuple[int, str]:
        status, body, _ = await get(self.admin, "/readyz")
        return status, body.decode()

    async def json(self, path: str, **headers: str) -> Any:
        status, body, answered = await get(self.admin, path, **headers)
        assert (status, answered["content-type"]) == (200, "application/json"), body
        return msgspec.json.decode(body)

    async def post(self, path: str, body: object, token: str = "", **headers: str) -> tuple[int, Any]:
        """Post JSON; return the status and the JSON of the answer."""
        headers = {"content-type": "application/json", **headers}
        if token:
            headers["authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        status, answer, _ = await asked(self.admin, "POST", path, headers, content)
        return status, msgspec.json.decode(answer)

    async def look(self, now_ms: int) -> None:
        await in_steps(self.state.history.look(now_ms))


Script = Callable[[Stage], Awaitable[None]]


def play(script: Script) -> None:
    """Run a script on a stage without quotas, Trio being a guest of the reactor."""
    play_with(script)


def play_with(script: Script, quotas: Path | None = None, **options: object) -> None:
    """Run a script on a stage with this quota file, and further settings."""
    reactor = Reactor(monotonic_us)
    try:
        run_hosting_trio(reactor, lambda: _stage(reactor, script, quotas, options))
    finally:
        reactor.close()


async def _stage(reactor: Reactor, script: Script, quotas: Path | None, options: dict[str, object]) -> None:
    with trio.fail_after(LONG_S):
        async with trio.open_nursery() as nursery:
            cluster = Cluster()
            broker = await nursery.start(serve, cluster, 0)
            port = free_range(4)
            settings = {
                "upstream": str(cluster.nodes[0]),
                "listen": f"{HOST}:{port}",
                "broker_ports": f"{port + 1}-{port + 2}",
                "drain_timeout_s": LONG_S,
                "quotas": None if quotas is None else str(quotas),
                "admin": f"{HOST}:{port + 3}",
                **options,
            }
            found = config.load(None, settings)
            store = FileStore(found.quota_file)
            table = store.start()
            registry, health = QuotaRegistry(table), StoreHealth(lambda: 0.0)
            server = Server(found, registry, clock_ms=lambda: reactor.present_us() // 1000)
            manager = QuotaManager(store, registry, table, frozenset(), health, server.supervisor)
            await nursery.start(manager.run)
            pool, local = local_pool(server, nursery, reactor, manager)
            watch_outages(server, health)
            server.health.sources.append(Problems(server, None, time.time, time.monotonic).read)
            listening = trio.Event()
            sources = Sources(server, pool, registry, health, lambda: reactor.now_ms, quota_manager=manager)
            state = state_of(sources, Readiness(server, listening))
            rules = found.admin_access
            token = None if rules.token_file is None else Token(rules.token_file)
            sockets = await listen(Address(HOST, port + 3), LONG_S)
            context = None if rules.tls is None else lambda: rules.tls.context  # type: ignore[union-attr]
            refusals = Refusals(sources.refused, server.rate_limited_log.note)
            app = AccessControl(application(state), rules, token, refusals)
            nursery.start_soon(Endpoint(sockets, app, context).serve, server.supervisor)
            await script(
                Stage(server, pool, local, state, cluster, broker, nursery, port + 3, port, listening)
            )
            nursery.cancel_scope.cancel()
