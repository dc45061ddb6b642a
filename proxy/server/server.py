"""The server: it listens, discovers brokers, reloads files and expires budgets. Workers accept the clients
and move the bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Final, Protocol

import structlog
import trio

from weir.proxy import file_watch, logs
from weir.proxy.addresses import Address, AddressBook
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config.config import Config, ConfigError
from weir.proxy.control import rate_limited_log
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.address_check import AddressCheck
from weir.proxy.control.cluster.broker_states import BrokerStates
from weir.proxy.control.cluster.discovery import Discovery
from weir.proxy.control.events import levels, throttle_log
from weir.proxy.control.events.health import PERIOD_S as CHANGES_S
from weir.proxy.control.events.health import Health
from weir.proxy.control.events.hub import Hub
from weir.proxy.control.events.levels import UsageLevels
from weir.proxy.control.events.quota_changes import QuotaChanges
from weir.proxy.control.events.throttle_log import ThrottleLog
from weir.proxy.control.peers import Peers, WantedPeers
from weir.proxy.control.quota_registry import EXPIRY_S, QuotaRegistry
from weir.proxy.control.rate_limited_log import RateLimitedLog
from weir.proxy.control.scan import Scan
from weir.proxy.control.snapshots.connections import ConnectionFilter
from weir.proxy.control.snapshots.gauges import Gauges
from weir.proxy.control.snapshots.records import Connections, WorkerRecord
from weir.proxy.control.storage import StorageReader
from weir.proxy.control.supervisor import Supervisor, Task, every, in_steps
from weir.proxy.control.topic_counts import TopicCounter
from weir.proxy.counters import Counters
from weir.proxy.handlers.replication.replication import Replication
from weir.proxy.net import sockets
from weir.proxy.net.drivers import monotonic_ms
from weir.proxy.net.inherited import Inherited
from weir.proxy.net.latency import Latencies
from weir.proxy.net.own_listeners import OwnListeners
from weir.proxy.net.reactor import Turns
from weir.proxy.server.connection_limiter import limit_connections
from weir.proxy.server.listeners import Listeners
from weir.proxy.server.target import BOOTSTRAP, Target

log = structlog.get_logger("weir")


LOSSES: Final = ("died", "stuck", "failed", "replaced")
"""Reasons why workers are replaced."""


class Workers(Protocol):
    """The processes that serve the clients of a server."""

    async def begin(self) -> None:
        """Have the workers serve clients of the listeners, which are open; return once all are ready."""

    async def flush(self) -> None:
        """Have the workers send their unsent usage; wait for it, a second at most."""

    async def drain(self) -> None:
        """Have the workers end all connections once their requests are answered; wait until they have."""

    def records(self) -> tuple[WorkerRecord, ...]:
        """Return the states of all workers."""

    async def list_connections(self, wanted: ConnectionFilter) -> Connections:
        """Return the chosen connections."""

    async def end_waits(self, wanted: ConnectionFilter) -> int:
        """End the throttles of these connections, as far as present usage and limits allow; return the number
        of connections whose throttle ends earlier.
        """

    async def read_peers(self, wanted: WantedPeers) -> list[Peers]:
        """Return the clients of the open connections of each entity, in the same order."""


class Server:
    """The proxy for one cluster: a bootstrap listener, and a listener for each broker. Workers have the
    connections.
    """

    def __init__(
        self,
        config: Config,
        quotas: QuotaRegistry,
        inherited: Inherited | None = None,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """Begin without listeners; `serve` opens them, with `inherited` sockets where these fit. `clock_ms`
        is the clock of budgets and connections (ms).
        """
        self.config = config
        self.quotas = quotas
        self.remembered: dict[int, Address] = {}
        """Addresses of brokers, by node id, known from before the start: used if no broker lists them. Set it
        before calling `serve`.
        """
        self.address_book = AddressBook(config.advertised_listeners, self._open_broker_listener)
        self.broker_states = BrokerStates()
        """State of each broker, up or down."""
        self.events = Hub(lambda: time.time_ns() // 1_000_000)
        """Passes events to `/api/events` and to the events topic."""
        self.health = Health(self.events.publish)
        """Conditions that need an operator. Add sources before calling `serve`."""
        self.counters = Counters()
        """Sums over all workers, and failures of the supervisor's own tasks."""
        self.gauges = Gauges()
        """Sums over the latest reports of all workers."""
        self.turns = Turns()
        """Statistics of the turns (passes of their loops) of all workers: their number and durations."""
        self.latencies = Latencies()
        """Histograms of the time to forward a request, and of the time until the broker answers, for a sample
        of the requests.
        """
        self.worker_restarts: Counter[str] = Counter()
        """Number of replaced workers by reason."""
        self.replication = Replication(quotas.replication)
        """Replication throttles and budgets of all brokers (KIP-73)."""
        self.topic_counter = TopicCounter(
            lambda: self.address_book.candidates(config.upstream),
            Access.of(config),
            config.connect_timeout_s,
            lambda: self.config.settings.refresh_s,
            clock_ms,
        )
        """Counts topics while there are limits on their number."""
        quotas.on_update.append(self.topic_counter.use)
        self.topic_counter.use(quotas.in_force)
        self.health.sources.append(self.topic_counter.conditions)
        self.storage_reader = StorageReader(
            self._listed_brokers,
            Access.of(config),
            config.connect_timeout_s,
            lambda: self.config.settings.refresh_s,
            clock_ms,
        )
        """Reads the storage of brokers while there are storage budgets."""
        quotas.derive = self.storage_reader.budgets.applied
        quotas.on_update.append(self.storage_reader.use)
        self.storage_reader.use(quotas.in_force)
        self.health.sources.append(self.storage_reader.conditions)
        self.rate_limited_log = RateLimitedLog()
        self.supervisor = Supervisor(self.counters, self.rate_limited_log.note)
        """Restarts the tasks of the process after failures."""
        self.own_listeners = OwnListeners()
        """The IP addresses and ports at which this Weir listens."""
        self.listeners = Listeners(self.own_listeners, inherited)
        self.on_use: list[Callable[[Config], None]] = []
        """Functions to call with each new configuration."""
        self._clock_ms = clock_ms
        self._discovery = Discovery(config, self.address_book, self.broker_states)
        self._address_check = AddressCheck(config, self.address_book, self.own_listeners)
        self._port_per_broker = not config.settings.sni_domain
        self._ips: list[str] = []
        """IP addresses of `listen`; looked up once at the start, because a look-up may take seconds."""
        self._stop = trio.Event()

    async def serve(
        self, workers: Workers, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen and have the workers relay until `stop` is called, then drain. Calls `task_status.started()`
        once clients can connect.

        If no broker can be reached, clients are refused until one can. Raises ConfigError if a port is taken.
        Cancelling closes all connections at once.
        """
        try:
            await self._listen()
            await workers.begin()
            async with trio.open_nursery() as nursery:
                task_status.started()
                self._start_housekeeping(nursery, workers)
                await self._stop.wait()
                nursery.cancel_scope.cancel()
            self.listeners.close()
            await self._end_connections(workers)
        finally:
            self.listeners.close()
            self.rate_limited_log.close()

    async def _end_connections(self, workers: Workers) -> None:
        """Drain. Log how many connections have ended, how many were cut, and how many bytes of clients were
        not forwarded, also if cancelled.
        """
        await workers.flush()
        cut_before, unforwarded_before = self._count_cut(), self.counters.unforwarded_bytes
        connections = sum(each.connections for each in workers.records())
        log.info("draining", connections=connections, timeout_s=self.config.settings.drain_timeout_s)
        try:
            await workers.drain()
        finally:
            cut = self._count_cut() - cut_before
            unforwarded_bytes = self.counters.unforwarded_bytes - unforwarded_before
            log.info("stopped", ended=connections - cut, cut=cut, unforwarded_bytes=unforwarded_bytes)

    def _count_cut(self) -> int:
        closed = self.counters.closed
        return closed[CloseReason.DRAIN_TIMEOUT] + closed[CloseReason.STOPPED]

    def _start_housekeeping(self, nursery: trio.Nursery, workers: Workers) -> None:
        """Start the periodic tasks; a failure of one task stops no other."""

        def start(
            task: Task, period_s: float | Callable[[], float], step: Callable[[], Awaitable[None]]
        ) -> None:
            nursery.start_soon(self.supervisor.keep_running, task, every(period_s, step))

        start(Task.LOG, rate_limited_log.PERIOD_S, self.rate_limited_log.look)
        start(Task.BROKERS, lambda: self._discovery.period_s, self._discovery.refresh)
        nursery.start_soon(self.supervisor.keep_running, Task.BROKERS, self._address_check.run)
        nursery.start_soon(self.supervisor.keep_running, Task.BROKERS, self.topic_counter.follow)
        nursery.start_soon(self.supervisor.keep_running, Task.BROKERS, self.storage_reader.follow)
        for files in self.config.tls.files:
            start(Task.TLS_FILES, file_watch.LOOK_S, files.look)
        start(Task.EXPIRY, EXPIRY_S, lambda: in_steps(self.quotas.expire(self.now_ms)))
        publish = self.events.publish
        throttle_logs = [
            ThrottleLog(self.scan, workers.read_peers, publish, shadow=shadow) for shadow in (False, True)
        ]

        async def look_at_throttles() -> None:
            for throttles in throttle_logs:
                await throttles.look(self.now_ms)

        start(Task.THROTTLE_LOG, throttle_log.PERIOD_S, look_at_throttles)
        usage_levels = [UsageLevels(self.scan, publish, shadow=shadow) for shadow in (False, True)]
        start(
            Task.EVENTS,
            levels.PERIOD_S,
            lambda: in_steps(chain.from_iterable(both.look(self.now_ms) for both in usage_levels)),
        )
        changes = QuotaChanges(self.quotas, publish)
        start(Task.EVENTS, CHANGES_S, lambda: in_steps(changes.look()))

    @cached_property
    def scan(self) -> Scan:
        """The walk over all budgets, for the readers of throttles, levels of usage and histories."""
        return Scan(self.quotas)

    @property
    def now_ms(self) -> int:
        """Time (ms) on the clock that budgets and connections use."""
        return self._clock_ms()

    def use(self, config: Config) -> None:
        """Use the limits and times of this configuration from now on; limits of a connection apply to new
        connections. Other settings must be those of the present configuration.
        """
        self.config = config
        limit_connections(self.quotas.connections, config.settings)
        for call in self.on_use:
            call(config)

    def stop(self) -> None:
        """Accept no more clients, and close each connection when its requests in flight are answered, at the
        latest after the drain time.
        """
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """True once `stop` was called."""
        return self._stop.is_set()

    @property
    def log_lines_lost(self) -> int:
        """Number of log lines that could not be written, also those of workers."""
        return logs.lost_lines() + self.counters.log_lines_lost

    # Listening

    async def _listen(self) -> None:
        """Open all listeners, and log their addresses. Clients that the kernel accepts meanwhile wait in its
        queue. Raises ConfigError if a listener cannot be opened; no listener stays open in that case.
        """
        config = self.config
        await self._listen_for_brokers()
        nodes, untold, _away = await self._discovery.first()
        with _listening_at(config.listen, "choose another --listen"):
            self._ips = await sockets.ip_addresses(config.listen.host, config.connect_timeout_s)
            self.listeners.open(self._ips, config.listen.port, BOOTSTRAP)
        for node_id in nodes if self._port_per_broker else ():
            port = self._broker_port(node_id)
            with _listening_at(Address(config.listen.host, port), "choose other --broker-ports", node_id):
                self.listeners.open(self._ips, port, Target(node_id))
        self.address_book.note_single(len(nodes) == 1)
        for node_id, upstream in nodes.items():
            self.address_book.learn(node_id, upstream)
        if not nodes:
            self._remember(untold)
        log.info(
            "listening",
            address=str(config.listen),
            upstream=", ".join(map(str, config.upstream)),
            brokers=self.address_book.listeners,
        )

    def _remember(self, untold: str) -> None:
        """Open the listeners of the brokers that were known before the start, because no broker has listed
        the brokers now. `untold`: the reason, if a broker was reached; else empty.
        """
        self.address_book.fit(list(self.remembered))
        for node_id, upstream in self.remembered.items():
            self.address_book.observe(node_id, upstream)
        if self.remembered:
            log.warning("no broker lists the brokers, using the last known ones", count=len(self.remembered))
        elif untold:
            log.warning("upstream lists no brokers, learning them from responses", reason=untold)

    async def _listen_for_brokers(self) -> None:
        """Open the replication listeners. Brokers may need each other before they answer clients. Raises
        ConfigError.
        """
        rules, timeout_s = self.config.replication, self.config.connect_timeout_s
        for node_id, address in rules.listen.items():
            with _listening_at(address, "choose another replication_listen", node_id):
                ips = await sockets.ip_addresses(address.host, timeout_s)
                self.listeners.open(ips, address.port, Target(node_id, is_replication=True))
        if rules.listen:
            brokers = {node_id: f"{rules.listen[node_id]} to {at}" for node_id, at in rules.upstream.items()}
            log.info("listening for replication", brokers=brokers)

    def _broker_port(self, node_id: int) -> int:
        port = self.address_book.port(node_id)
        assert port is not None  # checked before the first listener was opened
        return port

    def _listed_brokers(self) -> dict[int, Address]:
        """Return the known brokers without those that have left the cluster, or are down."""
        is_listed = self.broker_states.is_listed
        return {node_id: at for node_id, at in self.address_book.nodes.items() if is_listed(node_id)}

    def _open_broker_listener(self, node_id: int, port: int) -> None:
        if self._port_per_broker:
            self.listeners.open(self._ips, port, Target(node_id))


@contextmanager
def _listening_at(address: Address, remedy: str, node_id: int | None = None) -> Iterator[None]:
    """Within the block, turn an OSError into a ConfigError whose text contains `remedy`."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        whose = "" if node_id is None else f" for broker {node_id}"
        raise ConfigError(f"cannot listen on {address}{whose}: {reason}: {remedy}") from None
