"""The server: Trio's half of the proxy.

It listens, connects, discovers, reloads, expires, drains; bytes are the reactor's.
"""

from __future__ import annotations

import errno
import math
import socket
from typing import Final

import structlog
import trio

from proxy import sockets
from proxy.addresses import Address, AddressBook, AdvertisedAddresses
from proxy.config import Config, ConfigError
from proxy.counters import Counters
from proxy.discovery import DiscoveryError, discover
from proxy.plans import Plans
from proxy.quota_book import QuotaBook
from proxy.reactor import BUFFER_BYTES, Reactor
from proxy.reasons import BY_PEERS, CloseReason
from proxy.relay import Relay
from proxy.session import Session, SessionLimits

log = structlog.get_logger("weir")

OVERLOAD: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""accept() fails like this when descriptors or memory have run out: wait, existing sessions will end."""
OVERLOAD_PAUSE_S: Final = 0.1
EXPIRY_S: Final = 30.0
"""How often idle budgets are looked for, as Kafka looks for idle sensors."""


class Server:
    """One cluster behind one bootstrap listener and a listener per broker."""

    def __init__(self, config: Config, reactor: Reactor, quotas: QuotaBook) -> None:
        self.config = config
        self.counters = Counters()
        self.quotas = quotas
        self.book = AddressBook(config.ports, self._open_broker_listener)
        self._reactor = reactor
        self._plans = Plans(self.counters)
        self._limits = SessionLimits(
            frame_bytes_max=config.settings.frame_bytes_max,
            in_flight_max=config.settings.in_flight_max,
            stream_above_bytes=BUFFER_BYTES,
        )
        self._relays: set[Relay] = set()
        self._listening: list[socket.socket] = []
        self._stop = trio.Event()
        self._ended = trio.Event()
        self._draining = False
        self._opened, self._to_accept = trio.open_memory_channel[tuple[list[socket.socket], int | None]](
            math.inf
        )
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and relay until `stop`, then drain; `task_status.started()` once clients can connect.

        Raises ConfigError if a port is taken or no upstream can be reached. Cancelling closes everything at
        once.
        """
        self._token = trio.lowlevel.current_trio_token()
        try:
            async with trio.open_nursery() as nursery:
                await self._discover_first()
                self._listen_for_clients()
                task_status.started()
                for task in (self._accept_opened, self._refresh_forever, self._expire_forever):
                    nursery.start_soon(task)
                await self._stop.wait()
                nursery.cancel_scope.cancel()
            await self._drain()
        finally:
            sockets.close_all(self._listening)
            for relay in list(self._relays):
                relay.close(CloseReason.STOPPED)

    def stop(self) -> None:
        """Accept nothing more; let requests under way finish within the drain time."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    @property
    def plans(self) -> Plans:
        """Every (API, version) that clients have used, with its count of requests. Read only."""
        return self._plans

    # Listening

    def _listen_for_clients(self) -> None:
        address = self.config.listen
        try:
            listening = sockets.listen(address)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"cannot listen on {address}: {reason}: choose another --listen") from None
        self._listening += listening
        self._opened.send_nowait((listening, None))
        log.info("listening", address=str(address), upstream=", ".join(map(str, self.config.upstream)))

    def _open_broker_listener(self, node_id: int, port: int) -> None:
        """Have the kernel accept connections now, in the reactor's turn; Trio takes them up in its own."""
        assert self._token is not None
        listening = sockets.listen(Address(self.config.listen.host, port))
        self._listening += listening
        self._token.run_sync_soon(self._opened.send_nowait, (listening, node_id))

    async def _accept_opened(self) -> None:
        """Start to accept on every listener as it is opened."""
        async with trio.open_nursery() as self._nursery:
            async for listening, node_id in self._to_accept:
                for sock in listening:
                    self._nursery.start_soon(self._accept_forever, sock, node_id)

    async def _accept_forever(self, listening: socket.socket, node_id: int | None) -> None:
        assert self._nursery is not None
        try:
            while True:
                try:
                    client, peer = listening.accept()
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(listening)
                except OSError as error:
                    await self._accept_failed(error)
                else:
                    self._nursery.start_soon(self._establish, client, node_id, Address(peer[0], peer[1]))
                    await trio.lowlevel.checkpoint()
        finally:
            trio.lowlevel.notify_closing(listening)
            listening.close()

    async def _accept_failed(self, error: OSError) -> None:
        if error.errno not in OVERLOAD:  # the client gave up before we came: nobody to serve
            await trio.lowlevel.checkpoint()
            return
        log.error("cannot accept connections: raise the limit of open files (ulimit -n)", error=str(error))
        await trio.sleep(OVERLOAD_PAUSE_S)

    # Sessions

    async def _establish(self, client: socket.socket, node_id: int | None, peer: Address) -> None:
        """Connect to the broker, then hand both sockets to the reactor."""
        counters = self.counters
        if counters.sessions_open >= self.config.settings.connections_max:
            self._refuse(client, peer, CloseReason.CONNECTION_LIMIT, "raise connections_max")
            return
        counters.sessions_open += 1
        relayed = False
        try:
            client.setblocking(False)
            sockets.no_delay(client)
            host = self.config.settings.advertised_host or sockets.local_host(client)
            broker, node_id = await self._connect(node_id)
            self._relay(client, broker, self._session(node_id, host), node_id, str(peer))
            relayed = True
        except trio.TooSlowError:
            timeout_s = self.config.settings.connect_timeout_s
            self._refuse(client, peer, CloseReason.CONNECT_TIMEOUT, f"broker silent for {timeout_s:g} s")
        except OSError as error:
            self._refuse(client, peer, CloseReason.BROKER_UNREACHABLE, str(error))
        finally:
            if not relayed:
                counters.sessions_open -= 1
                client.close()

    def _refuse(self, client: socket.socket, peer: Address, reason: CloseReason, detail: str) -> None:
        client.close()
        self.counters.closed[reason] += 1
        log.warning("connection refused", client=str(peer), reason=reason, detail=detail)

    async def _connect(self, node_id: int | None) -> tuple[socket.socket, int | None]:
        """Connect to a broker, for the bootstrap listener to any. Raises OSError or trio.TooSlowError."""
        failure: OSError | None = None
        timeout_s = self.config.settings.connect_timeout_s
        targets = self._targets(node_id)
        with trio.fail_after(timeout_s):
            for address, found in targets:
                # A host that swallows packets must leave time for the others.
                with trio.move_on_after(timeout_s if len(targets) == 1 else timeout_s / 3):
                    try:
                        return await sockets.connect(address), found
                    except OSError as error:
                        failure = OSError(f"broker {address}: {error.strerror or error}")
        raise failure or trio.TooSlowError

    def _targets(self, node_id: int | None) -> list[tuple[Address, int | None]]:
        """Where to connect, in order of preference: brokers whose id, and so whose quotas, are known come
        first.
        """
        if node_id is not None:
            return [(self.book.nodes[node_id], node_id)]
        named = [(address, self.book.node_at(address)) for address in self.config.upstream]
        first = [target for target in named if target[1] is not None]
        others = [(address, found) for found, address in self.book.nodes.items()]
        return list(dict.fromkeys(first + others + named))

    def _session(self, node_id: int | None, host: str) -> Session:
        return Session(
            plans=self._plans,
            quotas=self.quotas.of(node_id),
            addresses=AdvertisedAddresses(host, self.book),
            counters=self.counters,
            limits=self._limits,
            hold=self.config.settings.throttle_mode == "hold",
        )

    def _relay(
        self, client: socket.socket, broker: socket.socket, session: Session, node_id: int | None, peer: str
    ) -> None:
        """Hand both sockets over; from now on they are the relay's to close."""
        self.counters.sessions_opened += 1

        def ended(relay: Relay, reason: CloseReason, detail: str) -> None:
            self._relays.discard(relay)
            self.counters.sessions_open -= 1
            self.counters.closed[reason] += 1
            say = log.debug if reason in BY_PEERS else log.warning
            say("session ended", client=peer, node_id=node_id, reason=reason, detail=detail)
            if self._draining and not self._relays and self._token is not None:
                self._token.run_sync_soon(self._ended.set)

        self._relays.add(Relay(self._reactor, client, broker, session, ended))

    # Housekeeping

    async def _discover_first(self) -> None:
        settings = self.config.settings
        try:
            nodes = await discover(self.config.upstream, settings.connect_timeout_s)
        except DiscoveryError as error:
            if not error.reachable:
                raise ConfigError(f"no upstream broker can be reached: {error}: check --upstream") from None
            log.warning("upstream does not tell its brokers, learning them from clients", reason=str(error))
            return
        outside = self.book.outside(list(nodes))
        if outside is not None:
            raise ConfigError(outside)
        for node_id, address in nodes.items():
            if self.book.observe(node_id, address) is None:
                port = self.config.ports.port(node_id)
                raise ConfigError(
                    f"cannot listen on port {port} for broker {node_id}: choose other --broker-ports"
                )

    async def _refresh_forever(self) -> None:
        """Follow brokers that come, and move, while no client asks."""
        settings = self.config.settings
        while True:
            await trio.sleep(settings.refresh_s)
            try:
                nodes = await discover(
                    [*self.book.nodes.values(), *self.config.upstream], settings.connect_timeout_s
                )
            except DiscoveryError as error:
                log.warning("no broker answers", reason=str(error))
                continue
            for node_id, address in nodes.items():
                self.book.observe(node_id, address)

    async def _expire_forever(self) -> None:
        while True:
            await trio.sleep(EXPIRY_S)
            self.quotas.expire(self._reactor.now_ms)

    async def _drain(self) -> None:
        """Wait, for a bounded time, until every request under way is answered."""
        timeout_s = self.config.settings.drain_timeout_s
        self._draining = True
        log.info("draining", sessions=len(self._relays), timeout_s=timeout_s)
        for relay in list(self._relays):
            relay.drain()
        self._reactor.wake()
        if self._relays:
            with trio.move_on_after(timeout_s):
                await self._ended.wait()
        for relay in list(self._relays):
            relay.close(CloseReason.DRAIN_TIMEOUT, f"requests still unanswered after {timeout_s:g} s")
