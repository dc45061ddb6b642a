"""The data plane: the connections of clients to brokers, their plans, limits and counters, on one reactor.

`Server` adds the listeners and the questions to the cluster. A worker has a data plane without them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import structlog
import trio

from weir.proxy.addresses import Address, AddressBook, AdvertisedAddresses, UnchangedAddresses
from weir.proxy.close_reasons import BY_PEERS, CloseReason
from weir.proxy.config.config import Config, Settings
from weir.proxy.connection.client import Client
from weir.proxy.connection.connection import Connection, ConnectionLimits
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.connection.waits import waits_because
from weir.proxy.control import rate_limited_log
from weir.proxy.control.cluster.broker_states import BrokerStates
from weir.proxy.control.quota_registry import EXPIRY_S, QuotaRegistry
from weir.proxy.control.rate_limited_log import RateLimitedLog
from weir.proxy.control.snapshots.opened import ByteRates, OpenConnection
from weir.proxy.control.supervisor import Supervisor, Task, every, in_steps
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.old_reads.old_reads import OldReadAge
from weir.proxy.handlers.plans import Plans, prepare
from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics
from weir.proxy.handlers.replication.replica_fetcher import ReplicaFetcher, ReplicaFetches
from weir.proxy.handlers.replication.replication import Replication
from weir.proxy.handlers.sasl.identity import Identities
from weir.proxy.handlers.uplift.outdated_clients import OutdatedClients
from weir.proxy.net.lingering import DISCARD_MS, Lingering
from weir.proxy.net.own_listeners import OwnListeners
from weir.proxy.net.reactor import BUFFER_BYTES, Reactor
from weir.proxy.net.relay import Relay
from weir.proxy.net.side import Socket
from weir.proxy.net.tapped_relay import NewRelay
from weir.proxy.net.tls_relay import new_relay
from weir.proxy.net.tls_socket import TlsSocket
from weir.proxy.server.acceptor import Acceptor
from weir.proxy.server.connection_limiter import ConnectionLimiter
from weir.proxy.server.establish import AdmittedClient, Connector
from weir.proxy.server.lifetimes import Lifetimes
from weir.proxy.server.target import Target
from weir.quotas.limiters.throttle import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable

log = structlog.get_logger("weir")


class DataPlane:
    """The connections of one worker, from the accepted socket to their end."""

    def __init__(
        self,
        config: Config,
        reactor: Reactor,
        quotas: QuotaRegistry,
        address_book: AddressBook,
        states: BrokerStates,
        limiter: ConnectionLimiter,
        own_listeners: OwnListeners,
    ) -> None:
        """Begin without connections; share the other arguments with the caller."""
        self.config = config
        self.counters = Counters()
        self.new_relay: NewRelay = new_relay
        """Function that starts the relay of a connection. Set it before the first connection."""
        self.usage = _usage_registries(config.settings, quotas) if config.records_usage else None
        """Usage counters of all brokers' clients; None if usage is not recorded."""
        self._address_book = address_book
        self._quotas = quotas
        self._limiter = limiter
        self._reactor = reactor
        self.rate_limited_log = RateLimitedLog()
        prepare()
        make_plans = partial(
            Plans,
            self.counters,
            cluster=ClusterState(
                old_read_age=OldReadAge(int(1000 * config.settings.old_read_age_s), _unix_ms),
            ),
            manages_quotas=config.settings.quota_store != "broker",
            costs=config.request_time.costs,
            protected=ProtectedTopics(config.own_topics, config.admins, self.rate_limited_log.note),
            own_client_id=config.own_client_id,
            outdated=OutdatedClients(self.rate_limited_log.note),
        )
        self.replication = Replication(quotas.replication)
        """Replication throttles and budgets of all brokers (KIP-73)."""
        self.plans = make_plans(
            uplift=config.settings.uplift,
            identities=Identities(config.identity),
            throttles=config.replication.throttles_stored_by,
        )
        self.replication_plans = make_plans(
            replication=True, identities=Identities(config.identity, config.replication.principals)
        )
        """Plans of replication listeners. They have identities of their own, because one broker may require
        SASL at one of its listeners only.
        """
        self._limits = _connection_limits(config.settings)
        self.supervisor = Supervisor(self.counters, self.rate_limited_log.note)
        """Restarts the tasks of the process after failures."""
        reactor.on_error = self.supervisor.note_callback
        reactor.buffered.limit(config.settings.buffered_bytes_max)
        reactor.buffered.on_change = self._note_buffered
        self.acceptor = Acceptor(limiter, self.supervisor)
        """Accepts the clients of listening sockets; while a broker cannot be reached, its listener refuses
        connections.
        """
        self.connector = Connector(
            config,
            address_book,
            states,
            limiter,
            self.counters,
            self.rate_limited_log,
            self._relay,
            self.acceptor.refuse,
            own_listeners,
        )
        self.relays: dict[Relay, OpenConnection] = {}
        """The relays of all open connections."""
        self._numbers = count(1)
        self.lifetimes = Lifetimes(self.relays, lambda: self.config.settings)
        self._lingering: set[Lingering] = set()
        """Clients' sockets that are still open after their relays have ended."""
        self._ended = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        """Trio's token once the data plane drains."""

    def number_from(self, connections: int) -> None:
        """Number connections from `connections` + 1 on, so that no two processes have the same numbers."""
        self._numbers = count(connections + 1)
        if self.usage is not None:
            self.usage.number_from(connections)

    def start_housekeeping(self, nursery: trio.Nursery) -> None:
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

        start(Task.EXPIRY, EXPIRY_S, lambda: in_steps(self._quotas.expire(now_ms())))
        start(Task.LOG, rate_limited_log.PERIOD_S, self.rate_limited_log.look)
        start(Task.LIFETIMES, self.lifetimes.period_s, lambda: in_steps(self.lifetimes.look(present_ms)))

    def use(self, config: Config) -> None:
        """Use the limits and times of this configuration from now on; limits of a connection apply to new
        connections. Other settings must be those of the present configuration.
        """
        self.config = self.connector.config = config
        self._limits = _connection_limits(config.settings)
        self._reactor.buffered.limit(config.settings.buffered_bytes_max)

    def close(self) -> None:
        """Close all connections at once."""
        for relay in list(self.relays):
            relay.close(CloseReason.STOPPED)
        for lingering in list(self._lingering):
            lingering.close()
        self.rate_limited_log.close()

    def requests(self) -> Counter[tuple[int, int]]:
        """Return the number of requests of clients and brokers by (API key, version)."""
        counted = self.plans.requests()
        counted.update(self.replication_plans.requests())
        return counted

    def clients(self) -> list[Client]:
        """Return the clients of all open connections."""
        return [relay.connection.client for relay in self.relays]

    def _relay(self, client: AdmittedClient, broker: Socket, target: Target) -> None:
        """Start a relay between the client's and the broker's socket. The relay owns both sockets from then
        on.
        """
        node_id = target.node_id
        self.counters.sessions_opened += 1

        def ended(relay: Relay, reason: CloseReason, detail: str) -> None:
            self.relays.pop(relay, None)
            if not target.is_replication:
                self._limiter.leave(client.peer.host)
            self.counters.note_ended(reason, node_id, *relay.received_bytes)
            self.counters.unforwarded_bytes += relay.unforwarded_bytes
            if relay.lingering is not None:
                self._lingering.add(relay.lingering)
                relay.lingering.on_close = partial(self._lingered, relay.lingering)
            self._look_if_ended()
            self._say_ended(target, client.peer, reason, detail)

        relay = self.new_relay(self._reactor, client.sock, broker, self._connection(target, client), ended)
        self.relays[relay] = OpenConnection(
            next(self._numbers),
            str(client.listener),
            node_id,
            self._reactor.now_ms,
            isinstance(client.sock, TlsSocket),
            ByteRates(self._reactor.now_ms),
        )

    def _lingered(self, lingering: Lingering) -> None:
        self._lingering.discard(lingering)
        self._look_if_ended()

    def _look_if_ended(self) -> None:
        if self._token is not None and not self.relays and not self._lingering:
            self._token.run_sync_soon(self._ended.set)

    def _connection(self, target: Target, client: AdmittedClient) -> Connection:
        node_id, replication = target
        host = self.config.settings.advertised_host or client.host
        addresses = UnchangedAddresses if replication else AdvertisedAddresses
        return Connection(
            plans=self.replication_plans if replication else self.plans,
            quotas=self._quotas.of(node_id),
            addresses=addresses(host, self._address_book),
            limits=self._limits,
            user=client.user,
            peer=str(client.peer),
            states=self._states(node_id) if replication else (),
            clock=self._reactor.clock,
            usage=None if self.usage is None else self.usage.of(node_id),
        )

    def _states(self, node_id: int | None) -> tuple[ReplicaFetches]:
        """Return the states of capabilities on a connection of a replication listener."""
        fetcher = None if node_id is None else ReplicaFetcher(self.replication, node_id)
        return (ReplicaFetches(fetcher),)

    def _say_ended(self, target: Target, peer: Address, reason: CloseReason, detail: str) -> None:
        details = {"reason": reason, **target.log_fields, "client": str(peer), "detail": detail}
        if reason in BY_PEERS:
            log.debug("connection closed", **details)
        else:
            self.rate_limited_log.note(("ended", target, reason), _ended_badly, details)

    def _note_buffered(self) -> None:
        """Log that reading stops because of the limit of buffered bytes, or continues."""
        buffered = self._reactor.buffered
        details = {"buffered_bytes": buffered.bytes, "buffered_bytes_max": buffered.bytes_max}
        write = _reading_stops if buffered.full else _reading_goes_on
        self.rate_limited_log.note(("buffered", buffered.full), write, details)

    async def drain(self) -> None:
        """Wait until all requests in flight are answered, for at most `drain_timeout_s`."""
        # No client is told to bootstrap again (KIP-1102): it would send its requests in flight again, and
        # librdkafka without idempotence then stores their records twice. Told, a client is idle for half a
        # second less at most (2026-11-27, Java 4.2.0, librdkafka 2.16).
        timeout_s = self.config.settings.drain_timeout_s
        self._token = trio.lowlevel.current_trio_token()
        for relay in list(self.relays):
            relay.drain()
        await self._all_closed(timeout_s)
        for relay in list(self.relays):
            waits = waits_because(relay.connection, self._reactor.now_ms)
            detail = f"requests still unanswered after {timeout_s:g} s"
            relay.close(CloseReason.DRAIN_TIMEOUT, f"{detail}: {waits}" if waits else detail)
        await self._all_closed(2 * DISCARD_MS / 1000)

    async def _all_closed(self, timeout_s: float) -> None:
        """Wait until all connections are closed, for at most `timeout_s`."""
        self._reactor.wake()  # the wait in progress does not include new timers
        if self.relays or self._lingering:
            with trio.move_on_after(timeout_s):
                await self._ended.wait()


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000


def _connection_limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        frame_bytes_max=settings.frame_bytes_max,
        throttle_ms_max=settings.throttle_ms_max or INT32_MAX,
        stream_above_bytes=BUFFER_BYTES,
    )


def _usage_registries(settings: Settings, quotas: QuotaRegistry) -> UsageRegistries:
    return UsageRegistries(
        trace_share=settings.usage_trace_share,
        group_of=lambda user, client_id: quotas.table.groups.of(user, client_id),  # the table may change
    )


def _ended_badly(count: int, details: Mapping[str, object]) -> None:
    log.warning("connection closed", count=count, **details)


def _reading_stops(count: int, details: Mapping[str, object]) -> None:
    log.warning("too many buffered bytes, connections are not read", count=count, **details)


def _reading_goes_on(count: int, details: Mapping[str, object]) -> None:
    log.info("connections are read again", count=count, **details)
