"""Run the proxy as a process: signals, and reload of the quota store."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from platform import python_version
from typing import NamedTuple

import structlog
import trio

from weir.proxy import file_watch
from weir.proxy.build import VERSION, build
from weir.proxy.config.config import Config
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.cluster.broker_map import BrokerMap
from weir.proxy.control.configured import quota_registry as quota_registry
from weir.proxy.control.events.health import PERIOD_S
from weir.proxy.control.events.topic import EventsTopic, events_topic
from weir.proxy.control.garbage import collect_garbage
from weir.proxy.control.quota_registry import QuotaRegistry, is_shareable
from weir.proxy.control.replication.follower import ReplicationFollower, replication_follower
from weir.proxy.control.sharing.sharing import UsageSharing, usage_sharing
from weir.proxy.control.stalls import Stalls
from weir.proxy.control.state_directory import StateDirectory, StateFile, state_directory, state_not_written
from weir.proxy.control.stores.broker import broker_store
from weir.proxy.control.stores.file import FileStore
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.stores.snapshot import LastKnown
from weir.proxy.control.stores.store import QuotaStore, StoreHealth
from weir.proxy.control.stores.topic import topic_store
from weir.proxy.control.supervisor import Task, every
from weir.proxy.control.systemd import READY, STOPPING, Systemd, of_this_process
from weir.proxy.control.usage.outlet import Record
from weir.proxy.control.usage.start import Recording, recording
from weir.proxy.control.usage.tally import Kind, Tally
from weir.proxy.control.used_units_file import UsedUnitsFile
from weir.proxy.net import sockets
from weir.proxy.net.drivers import monotonic_ms
from weir.proxy.net.inherited import Inherited, from_systemd
from weir.proxy.server.problems import Problems, watch_outages
from weir.proxy.server.reload import Reload
from weir.proxy.server.server import Server
from weir.proxy.server.takeover import taker as taking
from weir.proxy.server.takeover.giver import Estate, Giver
from weir.proxy.workers.pool import Pool, number_of_cores
from weir.quotas import QuotaTable
from weir.quotas.handover import UsedUnits
from weir.quotas.table.ends import in_force_at
from weir.quotas.table.times import now_utc

log = structlog.get_logger("weir")


def run(config: Config, load: Callable[[], Config] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal stops at once. `load` reads the
    configuration again; None if it cannot change. Raises ConfigError.
    """
    check_system()
    recorded, events = recording(config), events_topic(config)
    state = state_directory(config.settings, os.environ)
    chosen = choose(config, state)
    registry = quota_registry(config, in_force_at(chosen.table, now_utc()))
    sockets.allow_all_descriptors()
    try:
        trio.run(_main, config, registry, chosen, state, recorded, events, load or (lambda: config))
    except BaseExceptionGroup as group:
        raise single(group) from None


def check_system() -> None:
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
    snapshot: Sequence[StateFile] = ()
    """The file with the last known quotas of the store; none if the store is a file itself."""


def choose(config: Config, state: StateDirectory) -> Chosen:
    """Open the configured quota store and read the quotas for the first time, before Trio runs. Raises
    ConfigError.
    """
    settings = config.settings
    if settings.quota_store == "file":
        file = FileStore(config.quota_file)
        return Chosen(file, file.start())
    if settings.quota_store == "broker":
        store = LastKnown(broker_store(config), state)
        return Chosen(store, trio.run(store.start), snapshot=[store.snapshot])
    topic = topic_store(config)
    store = LastKnown(topic, state)
    return Chosen(store, trio.run(store.start), lambda: topic.foreign, [store.snapshot])


def single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only exception within nested exception groups of one exception each, which nurseries make;
    else the outermost group that has several exceptions.
    """
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found


async def _main(
    config: Config,
    registry: QuotaRegistry,
    chosen: Chosen,
    directory: StateDirectory,
    recorded: Recording | None,
    events: EventsTopic | None,
    load: Callable[[], Config],
) -> None:
    place = Path(config.settings.takeover_socket) if config.settings.takeover_socket else None
    taker = None if place is None else await taking.begin(place)
    inherited = Inherited([*from_systemd(os.environ), *(taker.sockets if taker is not None else ())])
    server = Server(config, registry, inherited)
    state = StoreHealth(time.time, chosen.store.name, chosen.foreign_records)
    manager = QuotaManager(chosen.store, registry, chosen.table, config.admins, state, server.supervisor)
    sharing = usage_sharing(config, registry, monotonic_ms)
    pool = _pool(config, server, manager, recorded, sharing)
    server.storage_reader.on_change = manager.renew
    process = _Process(config, server, pool, manager, state, recorded, events, sharing)
    used_units = await _used_units_file(directory, registry, sharing, taken_over=taker is not None)
    broker_map = BrokerMap(directory, config.upstream, server.address_book)
    server.remembered = broker_map.read()
    if taker is not None:
        server.remembered |= taker.brokers
    follower = _replication_follower(config, server, registry)
    pool.accept(on=taker is None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run)  # the workers import their modules while this process goes on
        listening = trio.Event()
        admin = await process.open_admin(inherited, listening)
        if admin is not None and taker is None:
            nursery.start_soon(admin.serve)
        await nursery.start(manager.run)
        systemd = of_this_process()
        process.start_tasks(nursery, load, systemd)
        if follower is not None:
            _follow(follower, process, nursery)
        async with trio.open_nursery() as serving:
            await serving.start(server.serve, pool)
            if taker is not None:
                await taker.finish(process.absorb)
                if sharing is not None:
                    sharing.end_takeover()
                inherited.close()
                pool.accept(on=True)
                if admin is not None:  # the former Weir has answered there until now
                    nursery.start_soon(admin.serve)
            nursery.start_soon(collect_garbage)
            files: list[StateFile] = [broker_map, used_units, *chosen.snapshot]
            for file in files:
                server.health.watch(directory.outage(file.name), partial(state_not_written, file.name))
                keep = partial(directory.keep, file)
                nursery.start_soon(server.supervisor.keep_running, Task.STATE, keep)
            listening.set()
            systemd.tell(READY)
            nursery.start_soon(systemd.keep_alive)
            process.say_started()
            if recorded is not None:
                recorder = recorded.recorder(pool.usage, monotonic_ms, server.supervisor)
                await nursery.start(recorder.run)
            if place is not None:
                nursery.start_soon(_hand_over, place, process, admin, directory)
        nursery.cancel_scope.cancel()


class _Process(NamedTuple):
    """The parts of a Weir that is starting."""

    config: Config
    server: Server
    pool: Pool
    quota_manager: QuotaManager
    store: StoreHealth
    recorded: Recording | None
    events: EventsTopic | None
    sharing: UsageSharing | None

    @property
    def _tally(self) -> Tally | None:
        return None if self.recorded is None else self.recorded.writer.tally

    def absorb(self, taken: Iterable[UsedUnits]) -> None:
        """Record what clients of a former Weir have used, here and at the workers."""
        units = list(taken)
        self.server.quotas.absorb(units, self.server.now_ms)
        self.pool.inherit(units)

    async def open_admin(self, inherited: Inherited, listening: trio.Event) -> _Admin | None:
        """Open the admin endpoint, if one is configured. Raises ConfigError."""
        config, server = self.config, self.server
        if config.admin is None:
            return None
        from weir.proxy.admin import endpoint  # its libraries take half a second to import, and 20 MB

        sources = endpoint.Sources(
            server,
            self.pool,
            server.quotas,
            self.store,
            lambda: self.server.now_ms,
            self._tally,
            server.replication.quotas if config.replication.upstream else None,
            None if self.events is None else self.events.tally,
            self.sharing,
            self.quota_manager,
        )
        opened = await endpoint.listen(config.admin, config.connect_timeout_s, inherited)
        start = endpoint.prepare(config.admin, opened, sources, listening)
        return _Admin(opened, start, trio.CancelScope())

    def start_tasks(self, nursery: trio.Nursery, load: Callable[[], Config], systemd: Systemd) -> None:
        """Start to look for problems, and to obey signals and changes of the configuration file."""
        server, quota_manager = self.server, self.quota_manager
        keep_running = server.supervisor.keep_running
        watch_outages(server, self.store)
        problems = Problems(server, self._tally, time.time, time.monotonic)
        server.health.sources.append(problems.read)
        stalls = Stalls(time.monotonic())

        async def look() -> None:
            stalls.look(time.monotonic())
            server.health.look(server.now_ms)

        nursery.start_soon(keep_running, Task.EVENTS, every(PERIOD_S, look))
        if self.events is not None:
            nursery.start_soon(self.events.run, server.events)
        nursery.start_soon(obey_signals, server, nursery.cancel_scope, systemd)
        if self.sharing is not None:
            self.sharing.join()
            server.health.sources.append(self.sharing.conditions)
            nursery.start_soon(keep_running, Task.SHARING, self.sharing.run)
        reload = Reload(server, load, quota_manager.renew)
        nursery.start_soon(_obey_hangup, [quota_manager.reload, reload.reload])
        if self.config.file is not None:
            watching = every(file_watch.LOOK_S, reload.look)
            nursery.start_soon(keep_running, Task.CONFIGURATION, watching)

    def say_started(self) -> None:
        """Log the versions, files and quotas. Called after the start has succeeded, so that a failed start
        logs only its error.
        """
        config = self.config
        file = "none" if config.file is None else str(config.file)
        versions = {"version": VERSION, "build": build(), "python": python_version()}
        log.info("started", **versions, configuration=file)
        mode, quotas = config.settings.quota_mode, len(self.quota_manager.table)
        log.info("quotas in force", store=self.store.name, quotas=quotas, mode=mode)
        _say_costs(config)


class _Admin(NamedTuple):
    """The admin endpoint, whose sockets are open."""

    sockets: list[socket.socket]
    start: Callable[[trio.Nursery], None]
    scope: trio.CancelScope

    async def serve(self) -> None:
        """Serve until `scope` is cancelled, then close the sockets."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                self.start(nursery)


async def _used_units_file(
    directory: StateDirectory,
    registry: QuotaRegistry,
    sharing: UsageSharing | None,
    *,
    taken_over: bool,
) -> UsedUnitsFile:
    """Return the file of what clients have used, after charging what it has. Shared quotas read theirs from
    the topic. After a take-over, the former Weir tells what clients have used.
    """
    file = UsedUnitsFile(directory, registry, monotonic_ms)
    if not taken_over:
        await file.restore(None if sharing is None else is_shareable)
    elif sharing is not None:
        sharing.begin_takeover()
    return file


def _pool(
    config: Config,
    server: Server,
    manager: QuotaManager,
    recorded: Recording | None,
    sharing: UsageSharing | None,
) -> Pool:
    """Return the workers that the configuration asks for. Raises ConfigError."""

    def put(kind: Kind, records: Sequence[Record]) -> None:
        if recorded is not None:
            recorded.writer.put(kind, records)

    number = config.settings.workers or number_of_cores()
    return Pool(server, manager, number, put, sharing)


async def _hand_over(
    place: Path,
    process: _Process,
    admin: _Admin | None,
    directory: StateDirectory,
) -> None:
    """Wait for a new Weir at the Unix socket `place`, and hand the listeners over to it. Raises
    ConfigError.
    """
    server, pool = process.server, process.pool

    async def flush() -> None:
        await pool.flush()
        if process.sharing is not None:
            process.sharing.report_now()

    def leave() -> None:
        if admin is not None:
            admin.scope.cancel()
        directory.abandon()
        server.stop()

    estate = Estate(
        sockets=lambda: server.listeners.all_sockets + ([] if admin is None else admin.sockets),
        brokers=lambda: server.address_book.nodes,
        used=lambda: server.quotas.used(server.now_ms),
        pause=partial(pool.accept, on=False),
        flush=flush,
        resume=partial(pool.accept, on=True),
        leave=leave,
    )
    giver = Giver(place, estate)
    try:
        await server.supervisor.keep_running(Task.TAKEOVER, giver.serve)
    finally:
        giver.close()


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


def _follow(follower: ReplicationFollower, process: _Process, nursery: trio.Nursery) -> None:
    """Start to follow the source of replication throttles."""
    process.quota_manager.on_altered_at_broker.append(follower.altered_at_broker)
    follower.on_change = process.pool.send_throttles
    nursery.start_soon(process.server.supervisor.keep_running, Task.REPLICATION, follower.follow)


def _say_costs(config: Config) -> None:
    """Log the file of request costs and the scale of request time, each only if it is configured."""
    settings, costs = config.settings, config.request_time.costs
    if settings.request_costs:
        log.info("request costs read", file=settings.request_costs, broker=costs.broker, source=costs.source)
    if settings.request_time_scale != "1":
        log.info("request time scaled", request_time_scale=settings.request_time_scale)


async def obey_signals(
    server: Server, everything: trio.CancelScope, systemd: Systemd, *others: signal.Signals
) -> None:
    """Stop the server at the first SIGTERM, SIGINT or one of `others`, and everything at the second one; tell
    systemd.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, *others) as received:
        async for number in received:
            if server.stopping:
                log.warning("stopping at once", signal=signal.Signals(number).name)
                everything.cancel()
                return
            log.info("stopping, again to stop at once", signal=signal.Signals(number).name)
            systemd.tell(STOPPING)
            server.stop()


async def _obey_hangup(reloads: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Read quotas and configuration again at each SIGHUP, which would otherwise end the process."""
    with trio.open_signal_receiver(signal.SIGHUP) as received:
        async for _number in received:
            log.info("reloading", signal="SIGHUP")
            for reload in reloads:
                await reload()
