"""The supervisor's side of the workers: which worker owns which broker, and the exchange with them."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count
from typing import Final

import trio

from weir.proxy.addresses import Address
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config.config import Config
from weir.proxy.control.events.conditions import Condition, problem
from weir.proxy.control.sharing.sharing import UsageSharing
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.records import Worker
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.supervisor import Task, every
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.refusals import RefusalError
from weir.proxy.server.server import Server
from weir.proxy.server.target import BOOTSTRAP, Target
from weir.proxy.workers import charges, counts, messages
from weir.proxy.workers.bootstrap import BootstrapBrokers
from weir.proxy.workers.former_usage import FormerUsage
from weir.proxy.workers.handle import LOOK_S, Handle, Plan, Reason
from weir.proxy.workers.questions import FLUSH_S, ConnectionLists, PeerLists, Questions
from weir.proxy.workers.quota_follower import changes_of, message_of
from weir.proxy.workers.refusing import RefusingListeners
from weir.proxy.workers.sharing import SharingSender
from weir.proxy.workers.usage import Put, UsageCollector
from weir.quotas import QuotaTable
from weir.quotas.handover import UsedUnits

LATE_S: Final = 3.0
"""Time (s) beyond the drain time after which workers that still run are killed."""
RECENT_S: Final = 60.0
"""Time (s) for which a lost worker counts as a problem."""
HALVED_EVERY_S: Final = 60.0
"""Time (s) after which the load of a broker counts half."""
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
        reactor: Reactor,
        number: int,
        put: Put,
        sharing: UsageSharing | None = None,
    ) -> None:
        """Begin with `number` workers that are not started. `server` gives its clients to them from now
        on. `put` takes usage records for writing; `sharing` shares usage with other Weirs.
        """
        self._server = server
        self._manager = manager
        self._reactor = reactor
        self.handles = [self._handle(index) for index in range(number)]
        self._told = dict.fromkeys(range(number), (QuotaTable(), False))
        """Number of the worker → (quota table, True if in shadow), as its process knows them."""
        self._owners: dict[int | None, int] = {}
        """Number of the worker that serves each broker."""
        self._former = FormerUsage(server.quotas, lambda: reactor.now_ms)
        self._load: Counter[int | None] = Counter()
        """Recent bytes of each broker."""
        self._refusing = RefusingListeners(server.listeners, server.counters)
        self._counts: dict[int, counts.Counts] = {}
        """The latest counters of each worker."""
        self._lost_s = -RECENT_S
        self.usage = UsageCollector(self._send, put)
        """The workers' usage records."""
        self._sharing = (
            None if sharing is None else SharingSender(sharing, self._send, lambda: reactor.now_ms)
        )
        self._lists = ConnectionLists(self.handles)
        self._peers = PeerLists(self.handles)
        self._flushes: Questions[None] = Questions(self.handles, FLUSH_S)
        self._bootstrap = BootstrapBrokers(
            server.plane.connector, server.broker_states.is_up, self._has_worker
        )
        self._processes = count()
        """Number of processes started so far."""
        self._ended = trio.Event()
        self._nursery: trio.Nursery | None = None
        server.receive = self.receive
        server.workers = self.records
        server.list_connections = self._lists.read
        server.read_peers = self._peers.read
        server.drain = self.drain
        server.conditions.sources.append(self._problems)
        server.quotas.on_update.append(self._send_quotas)
        server.on_use.append(self._send_limits)
        server.address_book.on_change.append(self._send_brokers)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run all workers until they have drained, or until cancelled. Calls `task_status.started()` when all
        are ready.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._halve_loads)
            keep_running = self._server.supervisor.keep_running
            nursery.start_soon(keep_running, Task.WORKERS, every(LOOK_S, self._refuse_waiting))
            async with trio.open_nursery() as processes:
                for handle in self.handles:
                    processes.start_soon(keep_running, Task.WORKERS, handle.run)
                for handle in self.handles:
                    await handle.ready.wait()
                task_status.started()
            self._ended.set()
            nursery.cancel_scope.cancel()

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
        """Wait until all workers that run have sent the charges of their clients, for at most `FLUSH_S`."""
        await self._flushes.ask(messages.Flush)

    def inherit(self, taken: Iterable[UsedUnits]) -> None:
        """Have the workers absorb the units that clients of a former Weir have used of quotas that brokers
        share. They get the units of other quotas with the broker's first client.
        """
        shared = (charges.Charge(used) for used in taken if charges.is_shared(used.quotas))
        for some in slices(shared, charges.CHARGES_MAX):
            self._send(messages.Charges(some))

    def records(self) -> tuple[Worker, ...]:
        """Return the states of all workers."""
        now_ms = time.time_ns() // 1_000_000
        return tuple(
            Worker(
                id=handle.number,
                pid=handle.pid,
                brokers=tuple(sorted(node for node in self.brokers_of(handle.number) if node is not None)),
                connections=handle.connections,
                beat_ms=now_ms - handle.silent_ms,
            )
            for handle in self.handles
        )

    # Clients

    async def receive(self, sock: socket.socket, target: Target, peer: Address) -> None:
        """Pass an accepted client to the worker of its broker, or refuse the client."""
        await self._server.plane.connector.pass_on(sock, target, peer, self._give)

    async def _give(self, sock: socket.socket, target: Target, listener: Target, peer: Address) -> None:
        node_id = await self._bootstrap.node_id() if target == BOOTSTRAP else target.node_id
        client = messages.Client(node_id, listener == BOOTSTRAP, *peer)
        (await self._worker_of(node_id)).give(client, sock)

    async def _worker_of(self, node_id: int | None) -> Handle:
        """Return the worker that serves this broker, once it has the broker's usage from before a restart of
        Weir. Other tasks run between the steps.
        """
        is_new, handle = node_id not in self._owners, self.handles[self.owner(node_id)]
        if is_new:
            await self._former.post(node_id, handle)
        else:
            await self._former.wait_posted(node_id)
        return handle

    def _has_worker(self, node_id: int) -> bool:
        """Return False while the worker of this broker does not run."""
        return node_id not in self._owners or self.handles[self._owners[node_id]].alive

    def owner(self, node_id: int | None) -> int:
        """Return the number of the worker that serves this broker. A new broker gets the worker with the
        least load, and of equal ones that with the fewest brokers.
        """
        if node_id not in self._owners:
            brokers, loads = Counter(self._owners.values()), Counter[int]()
            for node, owner in self._owners.items():
                loads[owner] += self._load[node]
            numbers = range(len(self.handles))
            owner = min(numbers, key=lambda number: (loads[number], brokers[number]))
            self._owners[node_id] = owner
        return self._owners[node_id]

    def brokers_of(self, number: int) -> list[int | None]:
        """Return the node ids of the brokers that a worker serves; None for the unknown broker of bootstrap
        connections.
        """
        return [node for node, owner in self._owners.items() if owner == number]

    async def _halve_loads(self) -> None:
        while True:
            await trio.sleep(HALVED_EVERY_S)
            self._load = Counter({node: load // 2 for node, load in self._load.items()})

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
        )
        registry = self._server.quotas
        self._told[number] = registry.table, registry.in_shadow
        yield message_of(registry.table, in_shadow=registry.in_shadow)

    def _state(self, number: int) -> Iterator[messages.Message | None]:
        """Yield the messages to a worker's process that is ready, and None after each step.

        Changes of the quotas come first, because former usage is of their limiters. No own client uses quotas
        of the worker's brokers meanwhile; what other Weirs report meanwhile does not reach these limiters.
        All else may change, so it comes last, in one step, with further changes of the quotas.
        """
        yield from self._quota_changes(number)
        sent: set[int | None] = set()
        while brokers := [node for node in self.brokers_of(number) if node not in sent]:
            sent.update(brokers)
            yield from self._former.at_brokers(brokers)
        yield messages.Limits(self._server.config.settings)
        yield from self._quota_changes(number)
        yield self._brokers()
        if self._sharing is not None:
            yield self._sharing.state()
        yield from self._former.shared()

    def _quota_changes(self, number: int) -> Iterator[messages.Message]:
        """Yield the changes of the quotas in force since the latest call for this worker."""
        registry = self._server.quotas
        table, in_shadow = self._told[number]
        if registry.table is not table or registry.in_shadow != in_shadow:
            self._told[number] = registry.table, registry.in_shadow
            yield from changes_of(registry.table.delta(table), in_shadow=registry.in_shadow)

    def _brokers(self) -> messages.Brokers:
        addresses = self._server.address_book
        return messages.Brokers(
            [(node_id, *address) for node_id, address in addresses.nodes.items()],
            addresses.sole is not None,
            [(*address, reason) for address, reason in addresses.misdirected.items()],
            self._server.own_listeners.names(),
        )

    def _send(self, message: messages.Message) -> None:
        for handle in self.handles:
            handle.post(message)

    def _send_brokers(self) -> None:
        self._send(self._brokers())

    def _send_quotas(self, _table: QuotaTable) -> None:
        for handle in self.handles:
            if handle.alive:
                for message in self._quota_changes(handle.number):
                    handle.post(message)

    def _send_limits(self, config: Config) -> None:
        self._send(messages.Limits(config.settings))

    # Messages of workers

    async def _take(self, number: int, message: messages.Message) -> None:
        """Obey a message of a worker."""
        server = self._server
        if isinstance(message, messages.Left):
            for host in message.hosts:
                if self.handles[number].left(host):
                    server.plane.connector.ended(host)
        elif isinstance(message, messages.Charges):
            self._take_charges(number, message)
        elif isinstance(message, messages.Report):
            self._take_counts(number, message.counts)
        elif isinstance(message, messages.Used):
            self.usage.take(message)
        elif isinstance(message, messages.Listed):
            self._lists.questions.take(number, message.number, message.connections)
        elif isinstance(message, messages.PeersListed):
            self._peers.questions.take(number, message.number, message.peers)
        elif isinstance(message, messages.Flushed):
            self._flushes.take(number, message.number, None)
        elif isinstance(message, messages.Alter | messages.AlteredAtBroker | messages.Denied):
            self._take_quota_request(number, message)
        else:
            self._take_news(message)

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

    def _take_news(self, message: messages.Message) -> None:
        """Obey a message of a worker about a broker."""
        server = self._server
        if isinstance(message, messages.Found):
            server.address_book.observe(message.node_id, Address(message.host, message.port))
        elif isinstance(message, messages.State):
            if message.failure is None:
                server.broker_states.reached(message.node_id)
            else:
                server.broker_states.failed(message.node_id, message.failure)
        elif isinstance(message, messages.Away) and self._nursery is not None:
            self._refusing.take(message, self._nursery)

    def _take_charges(self, number: int, message: messages.Charges) -> None:
        """Absorb charges here, and have the other workers absorb those of quotas that brokers share."""
        charges.take(self._server.quotas, message.charges, self._reactor.now_ms, count=True)
        shared = [charge for charge in message.charges if charges.is_shared(charge.used.quotas)]
        if shared:
            for handle in self.handles:
                if handle.number != number:
                    handle.post(messages.Charges(shared))

    def _take_counts(self, number: int, increase: counts.Counts) -> None:
        self._counts[number] = increase
        counts.sum_up(self._counts.values(), self._server.plane.elsewhere)
        counts.add(increase, self._server.plane, self._reactor.turns, self._reactor.latencies)
        self._load.update(increase.from_clients)
        self._load.update(increase.from_brokers)

    def _alter(self, number: int, message: messages.Alter) -> None:
        def done(error: str | None) -> None:
            self.handles[number].post(messages.Stored(message.number, error))

        changes = pickle.loads(message.pickled)  # noqa: S301  # a worker's
        alter = self._manager.alter_replication if message.replication else self._manager.alter
        alter(changes, message.who, message.peer, done)

    # Lost workers

    def _handle(self, number: int) -> Handle:
        plan = Plan(
            partial(self._first, number),
            partial(self._state, number),
            partial(self._take, number),
            partial(self._lost, number),
            self._refused,
        )
        return Handle(number, plan)

    def _lost(self, number: int, reason: Reason, hosts: list[str]) -> None:
        """Count the end of a worker's connections; its listeners accept connections again."""
        self._server.worker_restarts[reason] += 1
        self._lost_s = trio.current_time()
        self._counts.pop(number, None)
        counts.sum_up(self._counts.values(), self._server.plane.elsewhere)
        for host in hosts:
            self._server.plane.connector.ended(host)
        self._server.counters.closed_at[CloseReason.STOPPED, None] += len(hosts)
        self._refusing.accept(self.brokers_of(number))

    def _refused(self, client: messages.Client, refusal: RefusalError) -> None:
        """Count and log a client that was closed while it waited for a worker."""
        connector = self._server.plane.connector
        connector.ended(client.host)
        connector.note_refusal(refusal, Target(client.node_id), Address(client.host, client.port))

    async def _refuse_waiting(self) -> None:
        for handle in self.handles:
            handle.refuse_waiting()

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
                    f"Worker {handle.number} does not run: clients of its brokers wait, or are closed.",
                    _RESTART if handle.lost_by == "replaced" else _WAIT,
                )


def number_of(brokers: int) -> int:
    """Return the number of workers that `auto` stands for: one per core, and at most one per broker. 0: the
    number of brokers is not known.
    """
    cores = len(os.sched_getaffinity(0))
    return min(cores, brokers or cores)
