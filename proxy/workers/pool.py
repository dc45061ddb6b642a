"""The supervisor's side of the workers: their listeners, and the exchange with them."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Final

import trio

from weir.proxy.addresses import Address
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config.config import Config
from weir.proxy.control.events.health import Condition, problem
from weir.proxy.control.peers import Peers, WantedPeers
from weir.proxy.control.sharing.sharing import UsageSharing
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.connections import ConnectionFilter
from weir.proxy.control.snapshots.gauges import Gauges
from weir.proxy.control.snapshots.records import Connections, WorkerRecord
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.supervisor import Task
from weir.proxy.server.server import Server
from weir.proxy.server.target import Target
from weir.proxy.workers import charges, counts, messages, replication
from weir.proxy.workers.handle import Handle, PoolFunctions, Reason, Spawn, spawn_process
from weir.proxy.workers.questions import FLUSH_S, ConnectionLists, PeerLists, Questions
from weir.proxy.workers.quota_follower import changes_of, message_of
from weir.proxy.workers.sharing import SharingSender
from weir.proxy.workers.usage import Put, UsageCollector
from weir.quotas import QuotaTable
from weir.quotas.handover import UsedUnits

LATE_S: Final = 3.0
"""Time (s) beyond the drain time after which workers that still run are killed."""
RECENT_S: Final = 60.0
"""Time (s) for which a lost worker counts as a problem."""
CONNECTIONS_EACH: Final = 10**10
"""Distance between the first connection numbers of two processes."""
_WAIT: Final = "Weir starts the worker again. The log has the reason."
_RESTART: Final = (
    "Another version of Weir was installed while this one ran: restart Weir, or start a new one that takes "
    "over."
)


class Pool:
    """The workers of one supervisor."""

    def __init__(
        self,
        server: Server,
        manager: QuotaManager,
        number: int,
        put: Put,
        sharing: UsageSharing | None = None,
        *,
        spawn: Spawn = spawn_process,
    ) -> None:
        """Begin with `number` workers that are not started, and follow the changes of `server` from now on.
        `put` takes usage records for writing; `sharing` shares usage with other Weirs; `spawn` starts a
        worker. Raises ConfigError if TLS files cannot be used: workers would wait for usable ones for ever.
        """
        self._server = server
        self._manager = manager
        self._spawn = spawn
        self._begun = trio.Event()
        """Set once workers may serve clients."""
        self.handles = [self._handle(index) for index in range(number)]
        self._told = dict.fromkeys(range(number), (QuotaTable(), False))
        """Number of the worker → (quota table, True if in shadow), as its process knows them."""
        self._gauges: dict[int, Gauges] = {}
        """The latest gauges of each worker."""
        self._lost_s = -RECENT_S
        self.usage = UsageCollector(self._send, put)
        """The workers' usage records."""
        self._sharing = None if sharing is None else SharingSender(sharing, self._send, lambda: server.now_ms)
        self._lists = ConnectionLists(self.handles)
        self._peers = PeerLists(self.handles)
        self._ends: Questions[int] = Questions(self.handles)
        self._flushes: Questions[None] = Questions(self.handles, FLUSH_S)
        self._processes = count()
        """Number of processes started so far."""
        self._accepts = messages.Accept(True)
        self._ended = trio.Event()
        self._nursery: trio.Nursery | None = None
        server.listeners.on_open.append(self._listen)
        server.health.sources.append(self._problems)
        server.quotas.on_update.append(self._send_quotas)
        server.on_use.append(self._send_limits)
        server.address_book.on_change.append(self._send_brokers)
        for files in server.config.tls.files:
            files.keeps_contents = True
            files.load()
            files.on_change.append(self._send_tls)

    async def run(self) -> None:
        """Run all workers until they have drained, or until cancelled. They serve no clients before
        `begin`.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for handle in self.handles:
                nursery.start_soon(self._server.supervisor.keep_running, Task.WORKERS, handle.run)
        self._ended.set()

    async def begin(self) -> None:
        """Have the workers serve clients of the listeners, which are open; return once all are ready."""
        self._begun.set()
        for handle in self.handles:
            await handle.ready.wait()

    async def list_connections(self, wanted: ConnectionFilter) -> Connections:
        """Return the chosen connections of all workers that answer; those of the others count as hidden."""
        return await self._lists.read(wanted)

    async def end_waits(self, wanted: ConnectionFilter) -> int:
        """End the throttles of these connections at all workers that answer, as far as present usage and
        limits allow; return the number of connections whose throttle ends earlier.
        """
        return sum((await self._ends.ask(lambda number: messages.EndWaits(number, wanted))).values())

    async def read_peers(self, wanted: WantedPeers) -> list[Peers]:
        """Return the clients of the open connections of each entity, in the same order, at all workers that
        answer.
        """
        return await self._peers.read(wanted)

    async def drain(self) -> None:
        """Have all workers end their connections; wait for the drain time and a little longer, then kill
        those that still run.
        """
        for handle in self.handles:
            handle.drain()
        try:
            with trio.move_on_after(self._server.config.settings.drain_timeout_s + LATE_S):
                await self._ended.wait()
        finally:
            # A worker that has drained has told the ends of all its connections; the others die with theirs.
            cut = sum(handle.connections for handle in self.handles)
            self._server.counters.closed_at[CloseReason.STOPPED, None] += cut
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def flush(self) -> None:
        """Wait until all workers that run have told all charges and connections, for at most `FLUSH_S`."""
        await self._flushes.ask(messages.Flush)

    def inherit(self, taken: Iterable[UsedUnits]) -> None:
        """Have the workers absorb the units that clients of a former Weir have used."""
        for some in slices(map(charges.LimiterCharge, taken), charges.CHARGES_MAX):
            self._send(messages.Charges(some))

    def accept(self, *, on: bool) -> None:
        """Have all workers accept clients, or none: they wait in the kernel's queues then."""
        self._accepts = messages.Accept(on)
        self._send(self._accepts)

    def records(self) -> tuple[WorkerRecord, ...]:
        now_ms = time.time_ns() // 1_000_000
        return tuple(
            WorkerRecord(
                id=handle.number,
                pid=handle.pid,
                connections=handle.connections,
                beat_ms=now_ms - handle.silent_ms,
            )
            for handle in self.handles
        )

    # Listeners

    def _listen(self, target: Target, listening: Sequence[socket.socket]) -> None:
        """Have all workers accept the clients of a new listener."""
        self._send(messages.Listen(*target, len(listening)), listening)

    def _listeners(self) -> Iterator[tuple[messages.Listen, Sequence[socket.socket]]]:
        for target, listening in self._server.listeners.sockets.items():
            yield messages.Listen(*target, len(listening)), listening

    # Messages to workers

    def _first(self, number: int) -> Iterator[messages.Message]:
        """Yield the first messages to a worker's process."""
        config = self._server.config
        yield messages.Start(
            config.settings,
            config.request_time.costs,
            [files.in_force for files in config.tls.files],
            next(self._processes) * CONNECTIONS_EACH,
            config.own_client_id,
            len(self.handles),
        )
        registry = self._server.quotas
        self._told[number] = registry.derived, registry.in_shadow
        yield message_of(registry.derived, in_shadow=registry.in_shadow)

    def _state(self, number: int) -> Iterator[messages.Message | None]:
        """Yield the messages to a worker's process that is ready, and None after each step. All that may
        change between the steps comes last, in one step.

        Changes of the quotas come first, because former usage is of their limiters. Charges of other workers
        meanwhile do not reach this one: at most those of the last steps.
        """
        yield from self._quota_changes(number)
        for some in charges.of_all(self._server.quotas, self._server.now_ms):
            yield None if some is None else messages.Charges(some)
        yield messages.SettingsChanged(self._server.config.settings)
        yield from self._quota_changes(number)
        yield self._brokers()
        yield replication.throttled(self._server.replication)
        yield from replication.all_seen(self._server.replication)
        if self._sharing is not None:
            yield self._sharing.state()
        opened = [host for each in self.handles if each.number != number for host in each.open.elements()]
        yield messages.ConnectionsChanged(opened, [])
        yield self._accepts

    def _quota_changes(self, number: int) -> Iterator[messages.Message]:
        """Yield the changes of the quotas in force since the latest call for this worker."""
        registry = self._server.quotas
        table, in_shadow = self._told[number]
        if registry.derived is not table or registry.in_shadow != in_shadow:
            self._told[number] = registry.derived, registry.in_shadow
            yield from changes_of(registry.derived.delta(table), in_shadow=registry.in_shadow)

    def _brokers(self) -> messages.BrokerAddresses:
        addresses = self._server.address_book
        return messages.BrokerAddresses(
            [(node_id, *address) for node_id, address in addresses.nodes.items()],
            addresses.sole is not None,
            [(*address, reason) for address, reason in addresses.misdirected.items()],
            self._server.own_listeners.names(),
        )

    def _send(self, message: messages.Message, socks: Sequence[socket.socket] = ()) -> None:
        for handle in self.handles:
            handle.post(message, socks)

    def _send_others(self, number: int, message: messages.Message) -> None:
        """Send a message to all workers but this one."""
        for handle in self.handles:
            if handle.number != number:
                handle.post(message)

    def _send_brokers(self) -> None:
        self._send(self._brokers())

    def _send_quotas(self, _table: QuotaTable) -> None:
        for handle in self.handles:
            if handle.alive:
                for message in self._quota_changes(handle.number):
                    handle.post(message)

    def send_throttles(self) -> None:
        """Put the present replication throttles in force at all workers."""
        self._send(replication.throttled(self._server.replication))

    def _send_tls(self) -> None:
        self._send(messages.TlsFiles([files.in_force for files in self._server.config.tls.files]))

    def _send_limits(self, config: Config) -> None:
        self._send(messages.SettingsChanged(config.settings))

    # Messages of workers

    async def _take(self, number: int, message: messages.Message) -> None:
        """Obey a message of a worker."""
        if isinstance(message, messages.ConnectionsChanged):
            self._change_connections(number, message)
        elif isinstance(message, messages.Charges):
            self._take_charges(number, message)
        elif isinstance(message, messages.WorkerReport):
            self._take_counts(number, counts.loaded(message.pickled))
        elif isinstance(message, messages.UsageRecords):
            self.usage.take(message)
        elif isinstance(message, messages.ConnectionsListed):
            self._lists.questions.take(number, message.number, message.connections)
        elif isinstance(message, messages.WaitsEnded):
            self._ends.take(number, message.number, message.connections)
        elif isinstance(message, messages.PeersListed):
            self._peers.questions.take(number, message.number, message.peers)
        elif isinstance(message, messages.Flushed):
            self._flushes.take(number, message.number, None)
        elif isinstance(message, messages.CountTopics | messages.TopicsChanged):
            self._count_topics(number, message)
        elif isinstance(message, messages.Alter | messages.AlteredAtBroker | messages.Denied):
            self._take_quota_request(number, message)
        else:
            self._take_news(number, message)

    def _take_quota_request(
        self, number: int, message: messages.Alter | messages.AlteredAtBroker | messages.Denied
    ) -> None:
        """Obey a message of a worker about a client's request to alter quotas."""
        if isinstance(message, messages.Alter):
            self._alter(number, message)
        elif isinstance(message, messages.AlteredAtBroker):
            self._manager.altered_at_broker()
        else:
            self._manager.add_denied(message.count)

    def _take_news(self, number: int, message: messages.Message) -> None:
        """Obey a message of a worker about a broker, a topic or a replica."""
        server = self._server
        if isinstance(message, messages.BrokerFound):
            server.address_book.observe(message.node_id, Address(message.host, message.port))
        elif isinstance(message, messages.BrokerReached):
            if message.failure is None:
                server.broker_states.reached(message.node_id)
            else:
                server.broker_states.failed(message.node_id, message.failure)
        elif isinstance(message, messages.UnknownTopic):
            if server.replication.on_unknown_topic is not None:
                server.replication.on_unknown_topic()
        elif isinstance(message, messages.ReplicasSeen):
            replication.hear(server.replication, message)
            self._send_others(number, message)

    def _change_connections(self, number: int, message: messages.ConnectionsChanged) -> None:
        self.handles[number].change(message)
        self._server.counters.sessions_open += len(message.opened) - len(message.closed)
        self._send_others(number, message)

    def _take_charges(self, number: int, message: messages.Charges) -> None:
        """Absorb charges here, and have the other workers absorb them."""
        charges.take(self._server.quotas, message.charges, self._server.now_ms, count=True)
        self._send_others(number, message)

    def _take_counts(self, number: int, increase: counts.WorkerCounts) -> None:
        self._gauges[number] = increase.gauges
        self._server.gauges.sum_up(self._gauges.values())
        counts.add(increase, self._server)

    def _alter(self, number: int, message: messages.Alter) -> None:
        def done(error: str | None) -> None:
            self.handles[number].post(messages.Altered(message.number, error))

        changes = pickle.loads(message.pickled)  # noqa: S301  # a worker's
        alter = self._manager.alter_replication if message.replication else self._manager.alter
        alter(changes, message.who, message.peer, done)

    def _count_topics(self, number: int, message: messages.CountTopics | messages.TopicsChanged) -> None:
        counter = self._server.topic_counter
        if isinstance(message, messages.TopicsChanged):
            counter.settle(message.sizes, message.now_ms, message.sent_ms)
            return
        asked = message.number

        def done(reasons: list[str]) -> None:
            self.handles[number].post(messages.TopicsCounted(asked, reasons))

        counter.reserve(message.wanted, message.validate_only, done)

    # Lost workers

    def _handle(self, number: int) -> Handle:
        plan = PoolFunctions(
            partial(self._first, number),
            partial(self._state, number),
            partial(self._take, number),
            partial(self._lost, number),
            self._listeners,
            self._spawn,
            self._begun,
        )
        return Handle(number, plan)

    def _lost(self, number: int, reason: Reason, hosts: list[str]) -> None:
        """Count the end of a worker's connections, here and at the other workers."""
        self._server.worker_restarts[reason] += 1
        self._lost_s = trio.current_time()
        self._gauges.pop(number, None)
        self._server.gauges.sum_up(self._gauges.values())
        self._server.counters.sessions_open -= len(hosts)
        self._server.counters.closed_at[CloseReason.STOPPED, None] += len(hosts)
        self._send_others(number, messages.ConnectionsChanged([], hosts))

    def _problems(self) -> Iterator[Condition]:
        if trio.current_time() - self._lost_s < RECENT_S:
            total = self._server.worker_restarts.total()
            yield problem(
                "worker_lost",
                f"Workers were lost, {total} since the start: the connections of their clients have ended.",
                "The log has the reason: worker lost. Clients connect again by themselves.",
            )
        for handle in self.handles:
            if not handle.alive:
                yield problem(
                    f"worker_away {handle.number}",
                    f"Worker {handle.number} does not run: {_meanwhile(len(self.handles))}.",
                    _RESTART if handle.lost_by == "replaced" else _WAIT,
                )


def _meanwhile(workers: int) -> str:
    return "the others serve its clients" if workers > 1 else "new clients wait for it"


def number_of_cores() -> int:
    """Return the number of workers that `auto` stands for: one per core."""
    return len(os.sched_getaffinity(0))
