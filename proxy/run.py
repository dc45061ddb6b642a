"""Run the proxy as a process: signals, reload of the quota store, the reactor."""

from __future__ import annotations

import gc
import select
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Final, NamedTuple, assert_never

import structlog
import trio

from weir.proxy import file_watch
from weir.proxy.config.config import Config, check_quota_store
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.replication.follower import ReplicationFollower, replication_follower
from weir.proxy.control.stores.broker import broker_store
from weir.proxy.control.stores.file import FileStore
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.stores.snapshot import LastKnown
from weir.proxy.control.stores.store import QuotaStore, StoreHealth
from weir.proxy.control.stores.topic import topic_store
from weir.proxy.control.supervisor import Task, every
from weir.proxy.control.usage.start import Recording, recording
from weir.proxy.net import sockets
from weir.proxy.net.drivers import monotonic_us, run_hosting_trio
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.reload import Reload
from weir.proxy.server.server import Server
from weir.quotas import QuotaTable
from weir.quotas.table.bounded_names import EMPTY
from weir.quotas.table.options import Pacing

log = structlog.get_logger("weir")

COLLECTED_EVERY_S: Final = 3600.0
"""Time (s) between two full runs of the garbage collector."""
_NEVER: Final = 2**31 - 1


def run(config: Config, load: Callable[[], Config] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal stops at once. `load` reads the
    configuration again; None if it cannot change. Raises ConfigError.
    """
    _check_system()
    recorded = recording(config)
    chosen = choose(config)
    registry = quota_registry(config, chosen.table)
    sockets.allow_all_descriptors()
    reactor = Reactor(monotonic_us)
    try:
        run_hosting_trio(
            reactor, lambda: _main(config, reactor, registry, chosen, recorded, load or (lambda: config))
        )
    except BaseExceptionGroup as group:
        raise _single(group) from None
    finally:
        reactor.close()


def _check_system() -> None:
    """Raise ConfigError if the system lacks epoll, which the reactor needs."""
    if not hasattr(select, "epoll"):
        raise ConfigError(
            "this system has no epoll, which Weir needs: run it on Linux, or in Docker (deploy/Dockerfile)"
        )


class Chosen(NamedTuple):
    """The quota store that the configuration describes, and the quotas read from it at the start."""

    store: QuotaStore
    table: QuotaTable
    foreign_records: Callable[[], int] = int
    """Function that returns the number of records that no Weir has written; 0 unless the store is a topic."""


def choose(config: Config) -> Chosen:
    """Open the configured quota store and read the quotas for the first time, before Trio runs. Raises
    ConfigError.
    """
    settings = config.settings
    check_quota_store(settings)
    if settings.quota_store == "file":
        file = FileStore(config.quota_file)
        return Chosen(file, file.start())
    snapshot = Path(settings.quota_snapshot) if settings.quota_snapshot else None
    if settings.quota_store == "broker":
        store = LastKnown(broker_store(config), snapshot)
        return Chosen(store, trio.run(store.start))
    if settings.quota_store == "topic":
        topic = topic_store(config)
        store = LastKnown(topic, snapshot)
        return Chosen(store, trio.run(store.start), lambda: topic.foreign)
    assert_never(settings.quota_store)


def quota_registry(config: Config, table: QuotaTable) -> QuotaRegistry:
    """Return a quota registry with these quotas and the configured windows."""
    settings = config.settings
    return QuotaRegistry(
        table,
        settings.quota_window_num,
        settings.quota_window_size_seconds,
        settings.controller_quota_window_num,
        settings.controller_quota_window_size_seconds,
        in_shadow=settings.quota_mode == "shadow",
        pacing=Pacing(settings.quota_pacing),
        unnamed=EMPTY if settings.empty_client_id == "default" else "",
        request_time_scale=config.request_time.scale_of,
    )


def _single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only exception within nested exception groups of one exception each, which nurseries make;
    else the outermost group that has several exceptions.
    """
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found


async def _main(
    config: Config,
    reactor: Reactor,
    registry: QuotaRegistry,
    chosen: Chosen,
    recorded: Recording | None,
    load: Callable[[], Config],
) -> None:
    server = Server(config, reactor, registry)
    state = StoreHealth(time.time, chosen.store.name, chosen.foreign_records)
    quota_manager = QuotaManager(
        chosen.store, registry, chosen.table, config.admins, state, server.supervisor
    )
    server.quota_admin = quota_manager
    follower = _replication_follower(config, server, registry)
    async with trio.open_nursery() as nursery:
        listening = trio.Event()
        if config.admin is not None:
            from weir.proxy.admin import endpoint  # its libraries take half a second to import, and 20 MB

            tally = recorded.writer.tally if recorded is not None else None
            replication = server.replication.quotas if config.replication.upstream else None
            sources = endpoint.Sources(server, registry, state, lambda: reactor.now_ms, tally, replication)
            await endpoint.start(nursery, config.admin, sources, listening)
        await nursery.start(quota_manager.run)
        nursery.start_soon(_obey_signals, server, nursery.cancel_scope)
        if follower is not None:
            quota_manager.on_altered_at_broker.append(follower.altered_at_broker)
            nursery.start_soon(server.supervisor.keep_running, Task.REPLICATION, follower.follow)
        reload = Reload(server, load, quota_manager.set_mode)
        nursery.start_soon(_obey_hangup, [quota_manager.reload, reload.reload])
        if config.file is not None:
            watching = every(file_watch.LOOK_S, reload.look)
            nursery.start_soon(server.supervisor.keep_running, Task.CONFIGURATION, watching)
        async with trio.open_nursery() as serving:
            await serving.start(server.serve)
            nursery.start_soon(_collect_garbage)
            listening.set()
            _say_started(config)
            mode, quotas = config.settings.quota_mode, len(quota_manager.table)
            log.info("quotas in force", store=chosen.store.name, quotas=quotas, mode=mode)
            _say_costs(config)
            if recorded is not None and server.usage is not None:
                recorder = recorded.recorder(server.usage, lambda: monotonic_us() // 1000, server.supervisor)
                await nursery.start(recorder.run)
        nursery.cancel_scope.cancel()


def _replication_follower(
    config: Config, server: Server, registry: QuotaRegistry
) -> ReplicationFollower | None:
    """Return the follower of the configured source of replication throttles; None without replication
    listeners. Raises ConfigError.
    """
    if not config.replication.upstream:
        return None
    return replication_follower(
        config,
        registry,
        server.replication,
        server.address_book,
    )


async def _collect_garbage() -> None:
    """Make Python's garbage collector look at young objects as usual, at all objects once an hour, and never
    at those that exist after the start.

    A full run looks at every object and stops the reactor: for 36 ms after the start, for 110 ms with 100,000
    clients. Python would begin one whenever a quarter of the objects is new, so clients could cause full
    runs. Closed connections need no run: they leave no reference cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    while True:
        await trio.sleep(COLLECTED_EVERY_S)
        gc.collect()


def _say_started(config: Config) -> None:
    """Log the versions and the configuration file. Called after the start has succeeded, so that a failed
    start logs only its error.
    """
    file = "none" if config.file is None else str(config.file)
    log.info("started", version=version("kafka-weir"), python=python_version(), configuration=file)


def _say_costs(config: Config) -> None:
    """Log the file of request costs and the scale of request time, each only if it is configured."""
    settings, costs = config.settings, config.request_time.costs
    if settings.request_costs:
        log.info("request costs read", file=settings.request_costs, broker=costs.broker, source=costs.source)
    if settings.request_time_scale != "1":
        log.info("request time scaled", request_time_scale=settings.request_time_scale)


async def _obey_signals(server: Server, everything: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for number in received:
            if server.stopping:
                log.warning("stopping at once", signal=signal.Signals(number).name)
                everything.cancel()
                return
            log.info("stopping, again to stop at once", signal=signal.Signals(number).name)
            server.stop()


async def _obey_hangup(reloads: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Read quotas and configuration again at each SIGHUP, which would otherwise end the process."""
    with trio.open_signal_receiver(signal.SIGHUP) as received:
        async for _number in received:
            log.info("reloading", signal="SIGHUP")
            for reload in reloads:
                await reload()
