"""A worker: a data plane that accepts the clients of the supervisor's listeners."""

from __future__ import annotations

import ctypes
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
import structlog
import trio

from weir.proxy import logs
from weir.proxy.addresses import Address
from weir.proxy.config.config import Config, checked
from weir.proxy.config.settings import ConfigError, Settings
from weir.proxy.control.cluster.broker_states import BrokerStates
from weir.proxy.control.configured import quota_registry
from weir.proxy.control.garbage import collect_garbage
from weir.proxy.control.peers import local_peers
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.snapshots.sources import SnapshotSources
from weir.proxy.control.supervisor import Task, every, in_steps, on_timers, stepwise
from weir.proxy.net import sockets
from weir.proxy.net.drivers import monotonic_us, run_hosting_trio
from weir.proxy.net.own_listeners import OwnListeners
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.connection_limiter import ConnectionLimiter
from weir.proxy.server.data_plane import DataPlane
from weir.proxy.server.target import Target
from weir.proxy.workers import charges, counts, messages
from weir.proxy.workers.addresses import ToldAddresses
from weir.proxy.workers.charges_sender import ChargesSender
from weir.proxy.workers.link import Link, LinkError, Received
from weir.proxy.workers.questions import Answerer
from weir.proxy.workers.quota_admin import ForwardingQuotaAdmin
from weir.proxy.workers.quota_follower import QuotaFollower, table_of
from weir.proxy.workers.receiver import Receiver, Rest
from weir.proxy.workers.replication import ReplicationLink
from weir.proxy.workers.sharing import SharingFollower
from weir.proxy.workers.topic_counts import TopicCountLink
from weir.proxy.workers.usage import UsageSender
from weir.quotas.sharing.shared import LOOK_MS

log = structlog.get_logger("weir")

REPORT_S: Final = 1.0
TOLD_AGAIN_MS: Final = 1000
"""Time (ms) between two messages that a broker was reached."""
_PR_SET_PDEATHSIG: Final = 1


class Worker:
    """The data plane of one process, and its end of the link."""

    def __init__(
        self,
        config: Config,
        reactor: Reactor,
        registry: QuotaRegistry,
        link: Link,
        connections: int,
        *,
        workers: int = 1,
        note_limits: Callable[[Settings], None] = lambda _settings: None,
    ) -> None:
        """Begin without clients and brokers. Numbers of connections begin after `connections`. `workers` is
        the number of workers. Call `note_limits` with settings that have changed.
        """
        self._note_limits = note_limits
        self._reactor = reactor
        self.registry = registry
        self._link = link
        self._opened: list[str] = []
        self._closed: list[str] = []
        """Addresses of the connections that were opened and closed, and that the supervisor was not told of.
        """
        self._address_book = ToldAddresses(config.advertised_listeners, link.post, lambda: reactor.now_ms)
        self._tells_soon = workers > 1
        """True if connections count at other workers. The supervisor alone is told each second: a message
        wakes Trio there, which costs as much as a connection.
        """
        shares = workers > 1 or bool(config.settings.usage_share_topic)
        charged = (
            charges.ChargeReader(registry) if shares else charges.ChargeReader(registry, charges.ALONE_MAX)
        )
        self._charges_sender = ChargesSender(reactor, charged, link.post, self._note_own)
        self._counts: counts.WorkerCounts | None = None
        self.limiter = ConnectionLimiter(config, registry.connections, lambda: reactor.now_ms, workers)
        self.limiter.tell = self._note_connection
        self._own_listeners = OwnListeners()
        self.plane = DataPlane(
            config,
            reactor,
            registry,
            self._address_book,
            _ToldStates(link, lambda: reactor.now_ms),
            self.limiter,
            self._own_listeners,
        )
        self.plane.number_from(connections)
        self._usage = None if self.plane.usage is None else UsageSender(self.plane.usage, link.post)
        sources = SnapshotSources(
            registry,
            local_peers(self.plane.clients, registry),
            lambda: reactor.now_ms,
        )
        self._answerer = Answerer(sources, self.plane.relays, link.post)
        shared = config.settings.usage_share_topic
        self._sharing = SharingFollower(registry, reactor.now_ms) if shared else None
        self._quotas = QuotaFollower(registry)
        self._replication = ReplicationLink(self.plane.replication, link.post)
        counted = self.plane.plans.cluster.counted_topics
        self._topic_counts = TopicCountLink(counted, registry, link.post, connections)
        self._draining = trio.Event()
        self._admin = ForwardingQuotaAdmin(link, registry, config.admins, connections)
        self.plane.plans.quota_admin = self.plane.replication_plans.quota_admin = self._admin

    async def run(self) -> None:
        """Serve until the supervisor ends the link, or until cancelled. Raises LinkError then."""
        try:
            await self._serve()
        finally:
            self._charges_sender.stop()
            self.plane.close()

    async def _serve(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._link.send_forever)
            self._admin.nursery = nursery
            self.plane.start_housekeeping(nursery)
            self._charges_sender.start()
            self._start(nursery, REPORT_S, self._report)
            keep_running = self.plane.supervisor.keep_running
            nursery.start_soon(keep_running, Task.WORKERS, self._answerer.run)
            if self._usage is not None:
                nursery.start_soon(keep_running, Task.WORKERS, self._usage.run)
            if self._sharing is not None:
                looks = on_timers(self._reactor, LOOK_MS, self._look_at_shared)
                nursery.start_soon(keep_running, Task.WORKERS, looks)
            self._link.post(messages.Ready())
            async with trio.open_nursery() as serving:
                nursery.start_soon(Receiver(self._reactor, self._link, self._obey).run)
                serving.start_soon(self.plane.acceptor.accept_forever, self.plane.connector.establish)
                await self._draining.wait()
                serving.cancel_scope.cancel()  # clients that are not connected to their broker yet
            await self.plane.drain()
            await self._send_rest()

    async def _send_rest(self) -> None:
        """Send all that the supervisor does not know yet."""
        await self._report()
        await in_steps(self._charges_sender.send_rest())
        self._tell_connections()
        if self._usage is not None:
            await self._usage.finish()
        self._link.post(messages.Drained())

    def _start(self, nursery: trio.Nursery, period_s: float, step: Callable[[], Awaitable[None]]) -> None:
        nursery.start_soon(self.plane.supervisor.keep_running, Task.WORKERS, every(period_s, step))

    # Messages of the supervisor

    def _obey(self, received: Received) -> Rest | None:
        """Obey a message, or return the rest, which needs Trio. Raises LinkError."""
        message = received.message
        if isinstance(message, messages.Listen):
            self._listen(message, received.socks)
        elif isinstance(message, messages.Drain):
            self._tells_soon = True  # the supervisor counts what it cuts
            self._draining.set()
        elif isinstance(message, messages.Flush):
            return partial(self._flush, message.number)
        elif isinstance(message, messages.ReplicationThrottled | messages.ReplicasSeen):
            self._replication.take(message)
        elif isinstance(message, messages.TlsFiles):
            return partial(self._follow_tls, message)
        elif isinstance(message, messages.QuotasChanged):
            return partial(self._follow_quotas, message)
        else:
            self._take(message)
        return None

    async def _flush(self, number: int) -> None:
        await in_steps(self._charges_sender.send_rest())
        self._tell_connections()
        self._link.post(messages.Flushed(number))

    async def _follow_quotas(self, message: messages.QuotasChanged) -> None:
        await self._quotas.take(message)
        self._admin.table = self.registry.table

    async def _follow_tls(self, message: messages.TlsFiles) -> None:
        """Use changed TLS files for new connections; keep the present ones if this process cannot."""
        for files, contents in zip(self.plane.config.tls.files, message.tls, strict=True):
            try:
                await files.follow(contents)
            except ConfigError as error:  # the files have changed again, and are unusable now
                log.warning("changed TLS files not used by a worker", files=files.name, error=str(error))

    def _listen(self, message: messages.Listen, socks: list[socket.socket]) -> None:
        """Accept the clients of a listener. Raises LinkError if sockets are missing: the next process may
        have descriptors for them.
        """
        if len(socks) < message.sockets:
            log.error("no descriptors for listening sockets: raise the limit of open files (ulimit -n)")
            raise LinkError("sockets are missing")
        self.plane.acceptor.take(Target(message.node_id, message.is_replication), socks)

    def _take(self, message: messages.Message) -> None:
        now_ms = self._reactor.now_ms
        if isinstance(message, messages.Charges):
            charges.take(self.registry, message.charges, now_ms, count=False)
            self._note_own(message.charges)
        elif isinstance(message, messages.ConnectionsChanged):
            self.limiter.change_elsewhere(message.opened, message.closed)
        elif isinstance(message, messages.Accept):
            self.plane.acceptor.accept(on=message.accepts)
        elif isinstance(message, messages.OthersUsed | messages.SharingState):
            if self._sharing is not None:
                self._sharing.take(message, now_ms)
        elif isinstance(message, messages.BrokerAddresses):
            self.learn(message)
        elif isinstance(message, messages.Altered | messages.TopicsCounted):
            self._take_answer(message)
        elif isinstance(message, messages.ListConnections | messages.ListPeers | messages.EndWaits):
            self._answerer.take(message)
        elif isinstance(message, messages.TakeUsage | messages.TakeTraces):
            if self._usage is not None:
                self._usage.take(message)
        elif isinstance(message, messages.SettingsChanged):
            settings = of_worker(message.settings)
            config = checked(msgspec.structs.replace(settings, request_costs=""))
            self.plane.use(
                msgspec.structs.replace(
                    self.plane.config, settings=settings, connections_per_ip=config.connections_per_ip
                )
            )
            self.limiter.use(self.plane.config)
            self._note_limits(settings)

    def _take_answer(self, message: messages.Altered | messages.TopicsCounted) -> None:
        if isinstance(message, messages.Altered):
            self._admin.stored(message)
        else:
            self._topic_counts.take(message)

    def _look_at_shared(self) -> None:
        if self._sharing is not None:
            self._sharing.look(self._reactor.now_ms)

    def _note_own(self, some: list[charges.LimiterCharge]) -> None:
        """Count the use of quotas that Weirs share."""
        if self._sharing is not None:
            self._sharing.note(some, self._reactor.now_ms)

    def learn(self, message: messages.BrokerAddresses) -> None:
        """Use these addresses of brokers."""
        self._own_listeners.add(message.listening)
        self._address_book.note_single(message.is_single)
        self._address_book.misdirect({Address(host, port): why for host, port, why in message.misdirected})
        self._address_book.take({node_id: Address(host, port) for node_id, host, port in message.brokers})

    # Messages to the supervisor

    def _note_connection(self, host: str, is_open: bool) -> None:
        (self._opened if is_open else self._closed).append(host)
        if self._tells_soon and len(self._opened) + len(self._closed) == 1:
            self._reactor.call_at(self._reactor.now_ms + LOOK_MS, self._tell_connections)

    def _tell_connections(self) -> None:
        opened, closed, self._opened, self._closed = self._opened, self._closed, [], []
        if opened or closed:
            self._link.post(messages.ConnectionsChanged(opened, closed))

    async def _report(self) -> None:
        self._address_book.try_again()
        self._admin.tell_denied()
        now = await stepwise(counts.read(self.plane, self._reactor))
        self._link.post(messages.WorkerReport(counts.increase(now, self._counts).pickled()))
        self._counts = now
        self._tell_connections()
        await in_steps(self._replication.tell())


class _ToldStates(BrokerStates):
    """States of brokers that are also told to the supervisor."""

    def __init__(self, link: Link, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._link = link
        self._now_ms = now_ms
        self._told_ms: dict[int, int] = {}

    def reached(self, node_id: int | None) -> None:
        """Record a successful connection, and tell it unless that was told within a second."""
        super().reached(node_id)
        if node_id is not None and self._now_ms() >= self._told_ms.get(node_id, 0):
            self._told_ms[node_id] = self._now_ms() + TOLD_AGAIN_MS
            self._link.post(messages.BrokerReached(node_id, None))

    def failed(self, node_id: int | None, reason: str) -> None:
        """Record a failed connection, and tell it."""
        super().failed(node_id, reason)
        if node_id is not None:
            self._told_ms.pop(node_id, None)
            self._link.post(messages.BrokerReached(node_id, reason))


def config_of(start: messages.Start) -> Config:
    """Return the configuration of a worker. No file is read: one that was broken since the supervisor has
    read it must not keep a new worker from its clients.
    """
    settings = msgspec.structs.replace(of_worker(start.settings), request_costs="")
    config = checked(settings)
    costs = replace(config.request_time, costs=start.costs)
    config = msgspec.structs.replace(config, request_time=costs, own_client_id=start.own_client_id)
    for files, contents in zip(config.tls.files, start.tls, strict=True):
        files.adopt(contents)
    return config


def of_worker(settings: Settings) -> Settings:
    """Return the settings of a worker: without the admin endpoint, the key of reports and Weir's own login at
    brokers, which the supervisor has.
    """
    return msgspec.structs.replace(
        settings,
        admin="",
        admin_token_file="",
        admin_tls_cert="",
        share_key_file="",
        upstream_sasl_mechanism="",
        upstream_sasl_password_file="",
        upstream_sasl_username="",
        upstream_sasl_token_url="",
    )


def main(fd: int) -> None:
    """Run a worker at the descriptor of its link until the supervisor has it end, or has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the supervisor
        signal.signal(number, signal.SIG_IGN)
    _end_with_parent()
    sockets.allow_all_descriptors()
    reactor = Reactor(monotonic_us)
    with logs.in_background():
        try:
            run_hosting_trio(reactor, lambda: _main(socket.socket(fileno=fd), reactor))
        except* LinkError:
            pass  # the supervisor has ended


async def _main(sock: socket.socket, reactor: Reactor) -> None:
    def configure_logs(settings: Settings) -> None:
        logs.configure(settings.log_level)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect_garbage)
        await (await begin(sock, reactor, configure_logs)).run()


async def begin(
    sock: socket.socket, reactor: Reactor, note_limits: Callable[[Settings], None] = lambda _settings: None
) -> Worker:
    """Return a worker as the supervisor at the other end of the link describes it. `note_limits` gets the
    settings now, and again when they change. Raises LinkError.
    """
    link = Link(sock)
    start, _socks = await link.receive()
    quotas, _socks = await link.receive()
    if not isinstance(start, messages.Start) or not isinstance(quotas, messages.QuotasInForce):
        raise LinkError("unexpected first messages")
    config = config_of(start)
    note_limits(config.settings)
    registry = quota_registry(config, table_of(quotas))
    registry.in_shadow = quotas.in_shadow
    registry.use(registry.table)
    return Worker(
        config, reactor, registry, link, start.connections, workers=start.workers, note_limits=note_limits
    )


def _end_with_parent() -> None:
    """Have the kernel kill this process when the supervisor ends, also while it is stopped."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
