"""The server: Trio's half of the proxy.

The server listens, connects, discovers brokers, reloads files, expires budgets and drains; the reactor moves
the bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import chain, count
from typing import Final

import structlog
import trio

from weir.proxy import file_watch
from weir.proxy.addresses import Address, AddressBook, AdvertisedAddresses, UnchangedAddresses
from weir.proxy.close_reasons import BY_PEERS, CloseReason
from weir.proxy.config.config import Config, ConfigError, Settings
from weir.proxy.connection.client import Client
from weir.proxy.connection.connection import Connection, ConnectionLimits
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.control.cluster.broker_states import BrokerStates
from weir.proxy.control.cluster.discovery import Discovery
from weir.proxy.control.events import levels, throttle_log
from weir.proxy.control.events.conditions import PERIOD_S as CHANGES_S
from weir.proxy.control.events.conditions import Conditions
from weir.proxy.control.events.hub import Hub
from weir.proxy.control.events.levels import UsageLevels
from weir.proxy.control.events.quota_changes import QuotaChanges
from weir.proxy.control.events.throttle_log import ThrottleLog
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.rate_limited_log import RateLimitedLog
from weir.proxy.control.scan import Scan
from weir.proxy.control.snapshots.opened import Opened, OpenRelays
from weir.proxy.control.supervisor import Supervisor, Task, every, in_steps
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.plans import Plans, prepare
from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics
from weir.proxy.handlers.quota_api.quota_admin import NoQuotaAdmin, QuotaAdmin
from weir.proxy.handlers.replication.replication import Replication
from weir.proxy.handlers.sasl.identity import Identities
from weir.proxy.net import sockets
from weir.proxy.net.buffered import BufferedBytes
from weir.proxy.net.inherited import Inherited
from weir.proxy.net.latency import Latencies
from weir.proxy.net.lingering import DISCARD_MS, Lingering
from weir.proxy.net.reactor import BUFFER_BYTES, INTERNAL_ERROR, Reactor, Turns
from weir.proxy.net.relay import Relay
from weir.proxy.net.side import Socket
from weir.proxy.net.tapped_relay import NewRelay
from weir.proxy.net.tls_relay import new_relay
from weir.proxy.net.tls_socket import TlsSocket
from weir.proxy.server.connection_limiter import ConnectionLimiter
from weir.proxy.server.establish import Client as AcceptedClient
from weir.proxy.server.establish import Connector
from weir.proxy.server.lifetimes import Lifetimes
from weir.proxy.server.listeners import Listeners
from weir.proxy.server.target import BOOTSTRAP, Target
from weir.quotas.limiters.throttle import INT32_MAX

log = structlog.get_logger("weir")

EXPIRY_S: Final = 30.0
"""Time (s) between two removals of idle budgets; Kafka checks for idle sensors as often."""


class Server:
    """The proxy for one cluster: a bootstrap listener, and a listener for each broker."""

    def __init__(
        self, config: Config, reactor: Reactor, quotas: QuotaRegistry, inherited: Inherited | None = None
    ) -> None:
        """Begin without listeners; `serve` opens them, with `inherited` sockets where these fit."""
        self.config = config
        self.counters = Counters()
        self.quotas = quotas
        self.quota_admin: QuotaAdmin = NoQuotaAdmin()
        """Object that describes and alters quotas for clients. Set it before calling `serve`."""
        self.remembered: dict[int, Address] = {}
        """Addresses of brokers, by node id, known from before the start: used if no broker lists them. Set it
        before calling `serve`.
        """
        self.new_relay: NewRelay = new_relay
        """Function that starts the relay of a connection. Set it before calling `serve`."""
        self.usage = _usage_registries(config.settings) if config.records_usage else None
        """Usage counters of all brokers' clients; None if usage is not recorded."""
        self.address_book = AddressBook(config.advertised_listeners, self._open_broker_listener)
        self.broker_states = BrokerStates()
        """State of each broker, up or down."""
        self.events = Hub(lambda: time.time_ns() // 1_000_000)
        """Passes events to `/api/events` and to the events topic."""
        self.conditions = Conditions(self.events.publish)
        """Conditions that need an operator. Add sources before calling `serve`."""
        self._discovery = Discovery(config, self.address_book, self.broker_states)
        self._reactor = reactor
        self._rate_limited_log = RateLimitedLog(reactor)
        prepare()
        make_plans = partial(
            Plans,
            self.counters,
            cluster=ClusterState(config.settings.auto_creation == "strict"),
            manages_quotas=config.settings.quota_store != "broker",
            costs=config.request_time.costs,
            protected=ProtectedTopics(config.own_topics, config.admins, self._rate_limited_log.note),
        )
        self.replication = Replication()
        """Replication throttles and budgets of all brokers (KIP-73)."""
        self._use_mode()
        quotas.on_update.append(lambda _table: self._use_mode())
        self._plans = make_plans(
            uplift=config.settings.uplift,
            identities=Identities(config.identity),
            throttles=config.replication.throttles_stored_by,
        )
        self._replication_plans = make_plans(replication=True, identities=Identities(config.identity))
        """Plans of replication listeners. They have identities of their own, because one broker may require
        SASL at one of its listeners only.
        """
        self._limits = _connection_limits(config.settings)
        self.supervisor = Supervisor(self.counters, self._rate_limited_log.note)
        """Restarts the tasks of the process after failures."""
        reactor.on_error = self._note_error
        reactor.buffered.limit(config.settings.buffered_bytes_max)
        reactor.buffered.on_change = self._note_buffered
        self.connection_limiter = ConnectionLimiter(config, quotas.in_force, lambda: reactor.now_ms)
        quotas.on_update.append(self.connection_limiter.quotas.update)
        self.listeners = Listeners(self.connection_limiter, self.supervisor, self._run_soon, inherited)
        self._connector = Connector(
            config,
            self.address_book,
            self.broker_states,
            self.connection_limiter,
            self.counters,
            self._rate_limited_log,
            self._relay,
            self.listeners.refuse,
        )
        self._relays: dict[Relay, Opened] = {}
        self._numbers = count(1)
        self._lifetimes = Lifetimes(self._relays, lambda: self.config.settings)
        self._lingering: set[Lingering] = set()
        """Clients' sockets that are still open after their relays have ended."""
        self._port_per_broker = not config.settings.sni_domain
        self._ips: list[str] = []
        """IP addresses of `listen`; looked up once at the start, because a look-up may take seconds."""
        self._stop = trio.Event()
        self._ended = trio.Event()
        self._draining = False
        self._token: trio.lowlevel.TrioToken | None = None

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and relay until `stop` is called, then drain. Calls `task_status.started()` once clients can
        connect.

        If no broker can be reached, clients are refused until one can. Raises ConfigError if a port is taken.
        Cancelling closes all connections at once.
        """
        self._token = trio.lowlevel.current_trio_token()
        try:
            for files in self.config.tls.files:
                files.load()
            await self._listen()
            async with trio.open_nursery() as nursery:
                task_status.started()
                nursery.start_soon(self.listeners.accept_forever, self._connector.establish)
                self._start_housekeeping(nursery)
                await self._stop.wait()
                nursery.cancel_scope.cancel()
            await self._drain()
        finally:
            self.listeners.close()
            for relay in list(self._relays):
                relay.close(CloseReason.STOPPED)
            for lingering in list(self._lingering):
                lingering.close()
            self._rate_limited_log.close()

    def _start_housekeeping(self, nursery: trio.Nursery) -> None:
        """Start the periodic tasks; a failure of one task stops no other."""

        def now_ms() -> int:
            return self._reactor.now_ms

        def present_ms() -> int:
            """Return the time (ms) also if the reactor has waited for long."""
            return self._reactor.present_us() // 1000

        def start(
            task: Task, period_s: float | Callable[[], float], step: Callable[[], Awaitable[None]]
        ) -> None:
            nursery.start_soon(self.supervisor.keep_running, task, every(period_s, step))

        start(Task.BROKERS, lambda: self._discovery.period_s, self._discovery.refresh)
        for files in self.config.tls.files:
            start(Task.TLS_FILES, file_watch.LOOK_S, files.look)
        start(Task.EXPIRY, EXPIRY_S, lambda: in_steps(self.quotas.expire(now_ms())))
        start(Task.EXPIRY, EXPIRY_S, lambda: in_steps(self.connection_limiter.quotas.expire(now_ms())))
        publish = self.events.publish
        start(Task.LIFETIMES, self._lifetimes.period_s, lambda: in_steps(self._lifetimes.look(present_ms)))
        throttle_logs = [
            ThrottleLog(self.scan, self._clients, publish, shadow=shadow) for shadow in (False, True)
        ]
        start(
            Task.THROTTLE_LOG,
            throttle_log.PERIOD_S,
            lambda: in_steps(chain.from_iterable(log.look(now_ms()) for log in throttle_logs)),
        )
        usage_levels = [UsageLevels(self.scan, publish, shadow=shadow) for shadow in (False, True)]
        start(
            Task.EVENTS,
            levels.PERIOD_S,
            lambda: in_steps(chain.from_iterable(both.look(now_ms()) for both in usage_levels)),
        )
        changes = QuotaChanges(self.quotas, publish)
        start(Task.EVENTS, CHANGES_S, lambda: in_steps(changes.look()))

    @cached_property
    def scan(self) -> Scan:
        """The walk over all budgets, for the readers of throttles, levels of usage and histories."""
        return Scan(self.quotas, self.connection_limiter.quotas)

    @property
    def relays(self) -> OpenRelays:
        """The relays of all open connections. Read only; copy it before other tasks run."""
        return self._relays

    @property
    def refusing(self) -> frozenset[int]:
        """Node ids of the brokers whose listeners refuse connections now."""
        return self._connector.refusing

    @property
    def now_ms(self) -> int:
        """Time (ms) on the clock that budgets and connections use."""
        return self._reactor.now_ms

    def _clients(self) -> list[Client]:
        """Return the clients of all open connections."""
        return [relay.connection.client for relay in self._relays]

    def use(self, config: Config) -> None:
        """Use the limits and times of this configuration from now on; limits of a connection apply to new
        connections. Other settings must be those of the present configuration.
        """
        self.config = self._connector.config = config
        self._limits = _connection_limits(config.settings)
        self._reactor.buffered.limit(config.settings.buffered_bytes_max)
        self.connection_limiter.use(config)

    def _use_mode(self) -> None:
        """Enforce replication throttles, or in shadow mode only count them."""
        self.replication.quotas.enforced = not self.quotas.in_shadow

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
    def plans(self) -> Plans:
        """Plans (how Weir handles requests) for every pair of API key and version that clients have used,
        with the number of these requests. Read only.
        """
        return self._plans

    def requests(self) -> Counter[tuple[int, int]]:
        """Return the number of requests of clients and brokers by (API key, version)."""
        counted = self._plans.requests()
        counted.update(self._replication_plans.requests())
        return counted

    @property
    def turns(self) -> Turns:
        """Statistics of the reactor's turns (passes of its loop): their number and durations."""
        return self._reactor.turns

    @property
    def latencies(self) -> Latencies:
        """Histograms of the time to forward a request, and of the time until the broker answers, for a sample
        of the requests.
        """
        return self._reactor.latencies

    @property
    def buffered(self) -> BufferedBytes:
        """Number of bytes that all connections have read and not sent yet, and its limit
        (`buffered_bytes_max`).
        """
        return self._reactor.buffered

    @property
    def received_bytes(self) -> tuple[int, int]:
        """Number of bytes received from clients, and number received from brokers, since the start."""
        counters = self.counters
        from_clients, from_brokers = counters.bytes_from_clients.total(), counters.bytes_from_brokers.total()
        for relay in self._relays:
            of_client, of_broker = relay.received_bytes
            from_clients += of_client
            from_brokers += of_broker
        return from_clients, from_brokers

    def _run_soon(self, call: Callable[[], None]) -> None:
        """Have Trio call `call` soon, on Trio's thread. Callable from any thread."""
        assert self._token is not None
        self._token.run_sync_soon(call)

    # Listening

    async def _listen(self) -> None:
        """Open all listeners, and log their addresses. Clients that the kernel accepts meanwhile wait in its
        queue. Raises ConfigError if a listener cannot be opened; no listener stays open in that case.
        """
        config = self.config
        await self._listen_for_brokers()
        nodes, untold, _away = await self._discovery.first()
        with _listening_at(config.listen, "choose another --listen"):
            self._ips = await sockets.ip_addresses(config.listen.host, config.settings.connect_timeout_s)
            self.listeners.open(self._ips, config.listen.port, BOOTSTRAP)
        for node_id in nodes if self._port_per_broker else ():
            port = self._broker_port(node_id)
            with _listening_at(Address(config.listen.host, port), "choose other --broker-ports", node_id):
                self.listeners.open(self._ips, port, Target(node_id))
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
        rules, timeout_s = self.config.replication, self.config.settings.connect_timeout_s
        for node_id, address in rules.listen.items():
            with _listening_at(address, "choose another --replication-listen", node_id):
                ips = await sockets.ip_addresses(address.host, timeout_s)
                self.listeners.open(ips, address.port, Target(node_id, is_replication=True))
        if rules.listen:
            brokers = {node_id: f"{rules.listen[node_id]} to {at}" for node_id, at in rules.upstream.items()}
            log.info("listening for replication", brokers=brokers)

    def _broker_port(self, node_id: int) -> int:
        port = self.address_book.port(node_id)
        assert port is not None  # checked before the first listener was opened
        return port

    def _open_broker_listener(self, node_id: int, port: int) -> None:
        if self._port_per_broker:
            self.listeners.open(self._ips, port, Target(node_id))

    # Connections

    def _relay(self, client: AcceptedClient, broker: Socket, target: Target) -> None:
        """Start a relay between the client's and the broker's socket. The relay owns both sockets from then
        on.
        """
        node_id = target.node_id
        self.counters.sessions_opened += 1

        def ended(relay: Relay, reason: CloseReason, detail: str) -> None:
            self._relays.pop(relay, None)
            if not target.is_replication:
                self.connection_limiter.leave(client.peer.host)
            self.counters.note_ended(reason, node_id, *relay.received_bytes)
            if relay.lingering is not None:
                self._lingering.add(relay.lingering)
                relay.lingering.on_close = partial(self._lingered, relay.lingering)
            self._look_if_ended()
            self._say_ended(target, client.peer, reason, detail)

        relay = self.new_relay(self._reactor, client.sock, broker, self._connection(target, client), ended)
        self._relays[relay] = Opened(
            next(self._numbers),
            str(client.listener),
            node_id,
            self._reactor.now_ms,
            isinstance(client.sock, TlsSocket),
        )

    def _lingered(self, lingering: Lingering) -> None:
        self._lingering.discard(lingering)
        self._look_if_ended()

    def _look_if_ended(self) -> None:
        if self._draining and not self._relays and not self._lingering:
            self._run_soon(self._ended.set)

    def _connection(self, target: Target, client: AcceptedClient) -> Connection:
        node_id, replication = target
        host = self.config.settings.advertised_host or client.host
        addresses = UnchangedAddresses if replication else AdvertisedAddresses
        return Connection(
            plans=self._replication_plans if replication else self._plans,
            quotas=self.quotas.of(node_id),
            addresses=addresses(host, self.address_book),
            counters=self.counters,
            limits=self._limits,
            hold=self.config.settings.throttle_mode == "hold",
            node_id=node_id,
            user=client.user,
            peer=str(client.peer),
            quota_admin=self.quota_admin,
            brokers=self.config.replication.principals if replication else None,
            replication=self.replication if replication else None,
            clock=self._reactor.clock,
            usage=None if self.usage is None else self.usage.of(node_id),
            number=self.counters.sessions_opened,
        )

    def _say_ended(self, target: Target, peer: Address, reason: CloseReason, detail: str) -> None:
        details = {"reason": reason, **target.log_fields, "client": str(peer), "detail": detail}
        if reason in BY_PEERS:
            log.debug("connection closed", **details)
        else:
            self._rate_limited_log.note(("ended", target, reason), _ended_badly, details)

    def _note_error(self, error: Exception) -> None:
        """Count and log an exception of one of the reactor's callbacks."""
        self.counters.task_failures[Task.REACTOR] += 1
        kind = ("internal", type(error).__name__)
        self._rate_limited_log.note(kind, _internal_error, {"exc_info": error})

    def _note_buffered(self) -> None:
        """Log that reading stops because of the limit of buffered bytes, or continues."""
        buffered = self._reactor.buffered
        details = {"buffered_bytes": buffered.bytes, "buffered_bytes_max": buffered.bytes_max}
        write = _reading_stops if buffered.full else _reading_goes_on
        self._rate_limited_log.note(("buffered", buffered.full), write, details)

    async def _drain(self) -> None:
        """Wait until all requests in flight are answered, for at most `drain_timeout_s`."""
        timeout_s = self.config.settings.drain_timeout_s
        self._draining = True
        log.info("draining", connections=len(self._relays), timeout_s=timeout_s)
        for relay in list(self._relays):
            relay.drain()
        await self._all_closed(timeout_s)
        for relay in list(self._relays):
            waits = relay.connection.waits_because(self._reactor.now_ms)
            detail = f"requests still unanswered after {timeout_s:g} s"
            relay.close(CloseReason.DRAIN_TIMEOUT, f"{detail}: {waits}" if waits else detail)
        await self._all_closed(2 * DISCARD_MS / 1000)

    async def _all_closed(self, timeout_s: float) -> None:
        """Wait until all connections are closed, for at most `timeout_s`."""
        self._reactor.wake()  # the wait in progress does not include new timers
        if self._relays or self._lingering:
            with trio.move_on_after(timeout_s):
                await self._ended.wait()


def _connection_limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        frame_bytes_max=settings.frame_bytes_max,
        in_flight_max=settings.in_flight_max,
        first_hold_ms_max=settings.first_request_hold_ms_max,
        throttle_ms_max=settings.throttle_ms_max or INT32_MAX,
        stream_above_bytes=BUFFER_BYTES,
    )


def _usage_registries(settings: Settings) -> UsageRegistries:
    return UsageRegistries(
        entities_max=settings.usage_entities_max,
        trace_share=settings.usage_trace_share,
        traces_max=settings.usage_queue_records,
    )


@contextmanager
def _listening_at(address: Address, remedy: str, node_id: int | None = None) -> Iterator[None]:
    """Within the block, turn an OSError into a ConfigError whose text contains `remedy`."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        whose = "" if node_id is None else f" for broker {node_id}"
        raise ConfigError(f"cannot listen on {address}{whose}: {reason}: {remedy}") from None


def _ended_badly(count: int, details: Mapping[str, object]) -> None:
    log.warning("connection closed", count=count, **details)


def _reading_stops(count: int, details: Mapping[str, object]) -> None:
    log.warning("too many buffered bytes, connections are not read", count=count, **details)


def _reading_goes_on(count: int, details: Mapping[str, object]) -> None:
    log.info("connections are read again", count=count, **details)


def _internal_error(count: int, details: Mapping[str, object]) -> None:
    log.error(INTERNAL_ERROR, count=count, **details)
