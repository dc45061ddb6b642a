"""Run the proxy only as a relay with a tap: no quotas, no uplift, no change of requests.

Addresses of brokers in responses still lead to Weir, so clients stay on it. The tap sees the bytes as they
were read: responses with the brokers' own addresses.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from weir.proxy.config.config import Config
from weir.proxy.connection.connection import Connection
from weir.proxy.control.stores.file import FileStore
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.control.systemd import of_this_process
from weir.proxy.net import sockets
from weir.proxy.net.drivers import monotonic_us, run_hosting_trio
from weir.proxy.net.reactor import Reactor
from weir.proxy.net.relay import OnEnd, Relay
from weir.proxy.net.side import Socket
from weir.proxy.net.tapped_relay import NewRelay, Tap, TappedRelay
from weir.proxy.run import check_system, obey_signals, quota_registry, single
from weir.proxy.server.server import Server
from weir.proxy.workers.local import LocalWorkers
from weir.proxy.workers.pool import Pool
from weir.proxy.workers.worker import Worker
from weir.quotas import QuotaTable

RELAY_ONLY: Final[Mapping[str, object]] = {
    "quotas": "broker",
    "uplift": False,
}
"""Settings with which Weir forwards all requests unchanged, if there are no quotas."""

OpenTap = Callable[[str, str, str], Tap]
"""Function (address of the client, address of the broker or "" if unknown, name of the listener) that returns
the tap of a new connection.
"""


Until = Callable[[], Awaitable[None]]
"""Function to await in Trio while Weir relays."""


def run_tapped(config: Config, open_tap: OpenTap, until: Until = trio.sleep_forever) -> None:
    """Relay until SIGTERM, SIGINT or SIGHUP, or until `until` returns, then drain; a second signal stops at
    once. `until` begins when Weir listens, and is cancelled when Weir stops. `config` must have the settings
    `RELAY_ONLY`. Raises ConfigError, and what `until` raises.
    """
    check_system()
    registry = quota_registry(config, QuotaTable())
    sockets.allow_all_descriptors()
    reactor = Reactor(monotonic_us)
    server = Server(config, registry)

    def prepare(worker: Worker) -> None:
        worker.plane.new_relay = _tapped_relays(server, open_tap)
        worker.plane.plans.outdated = None

    try:
        run_hosting_trio(reactor, lambda: _serve(server, reactor, prepare, until))
    except BaseExceptionGroup as group:
        raise single(group) from None
    finally:
        reactor.close()


async def _serve(server: Server, reactor: Reactor, prepare: Callable[[Worker], None], until: Until) -> None:
    store = FileStore(None)
    health = StoreHealth(time.time)
    manager = QuotaManager(
        store, server.quotas, QuotaTable(), server.config.admins, health, server.supervisor
    )
    async with trio.open_nursery() as nursery:
        spawn = LocalWorkers(nursery, reactor, prepare)
        pool = Pool(server, manager, 1, lambda _kind, _records: None, spawn=spawn)
        nursery.start_soon(pool.run)
        # Nothing is read again at a hangup. nohup has the signal ignored, which stays so.
        hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else []
        nursery.start_soon(obey_signals, server, nursery.cancel_scope, of_this_process(), *hangup)
        async with trio.open_nursery() as serving:
            await serving.start(server.serve, pool)
            nursery.start_soon(_stop_after, server, until)
        nursery.cancel_scope.cancel()


async def _stop_after(server: Server, until: Until) -> None:
    await until()
    server.stop()


def _tapped_relays(server: Server, open_tap: OpenTap) -> NewRelay:
    def new_relay(
        reactor: Reactor, client: Socket, broker: Socket, connection: Connection, on_end: OnEnd
    ) -> Relay:
        node_id = connection.node_id
        address = None if node_id is None else server.address_book.nodes.get(node_id)
        label = "bootstrap" if node_id is None else f"broker {node_id}"
        tap = open_tap(connection.client.peer, "" if address is None else str(address), label)
        return TappedRelay(reactor, client, broker, connection, on_end, tap)

    return new_relay
