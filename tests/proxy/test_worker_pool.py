"""The supervisor's pool, with workers that the tests play: no processes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.proxy.stage import Stage, until
from tests.proxy.supervised import supervisor
from tests.proxy.worker_rigs import Heard, connect, disconnect, new_pool
from tests.scripted import staged
from weir.proxy.build import VERSION
from weir.proxy.close_reasons import CloseReason
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.supervisor import Task
from weir.proxy.counters import Counters
from weir.proxy.server.target import Target
from weir.proxy.workers import handle as handles
from weir.proxy.workers.exit_codes import REPLACED
from weir.proxy.workers.handle import Handle, PoolFunctions, spawn_process
from weir.proxy.workers.life import WorkerEvent
from weir.proxy.workers.link import Link
from weir.proxy.workers.messages import (
    BrokerAddresses,
    Charges,
    ConnectionsChanged,
    Drained,
    Listen,
    Message,
    QuotasChanged,
    Ready,
)
from weir.proxy.workers.pool import Pool
from weir.proxy.workers.quota_follower import PART_MAX, QuotaFollower, message_of, table_of
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.table.groups import Member, QuotaGroups


@asynccontextmanager
async def pool_of(stage: Stage) -> AsyncIterator[tuple[Pool, list[Heard]]]:
    """A pool for the stage's server, and its workers' ends of the links."""
    pool = new_pool(stage.server)
    ends = connect(pool)
    async with trio.open_nursery() as nursery:
        pool._nursery = nursery
        for end in ends:
            nursery.start_soon(end.receive)
        yield pool, ends
        nursery.cancel_scope.cancel()
    disconnect(pool, ends)


# Connections


@staged(brokers=(0,))
async def test_connections_at_one_worker_are_told_to_the_others_and_end_with_the_worker(stage: Stage) -> None:
    opened, closed = ConnectionsChanged(["10.0.0.1"] * 3, []), ConnectionsChanged([], ["10.0.0.1"])
    async with pool_of(stage) as (pool, ends):
        for message in (opened, closed):
            await pool._take(0, message)
        assert await ends[1].hear(ConnectionsChanged, 2) == [opened, closed]
        assert (pool.handles[0].connections, stage.server.counters.sessions_open) == (2, 2)
        assert ConnectionsChanged(["10.0.0.1"] * 2, []) in list(pool._state(1))
        pool.handles[0]._lose("died")
        assert (await ends[1].hear(ConnectionsChanged, 3))[2] == ConnectionsChanged([], ["10.0.0.1"] * 2)
        assert (pool.handles[0].connections, stage.server.counters.sessions_open) == (0, 0)
        assert stage.server.counters.closed[CloseReason.STOPPED] == 2
        assert ends[0].of(ConnectionsChanged) == []


@staged(brokers=(0,))
async def test_workers_get_listeners_that_are_opened_while_they_run(stage: Stage) -> None:
    async with pool_of(stage) as (pool, ends):
        listening = stage.server.listeners.sockets[Target(0)]
        pool._listen(Target(0), listening)
        for end in ends:
            assert await end.hear(Listen) == [Listen(0, False, len(listening))]
            assert [sock.getsockname() for sock in end.sockets] == [sock.getsockname() for sock in listening]


# Lost workers


class Process:
    pid = 1
    exit_code = -9

    def __init__(self, theirs: socket.socket) -> None:
        self.link = Link(theirs.dup())

    def kill(self) -> None:
        self.link.close()

    async def wait(self) -> int:
        return self.exit_code


class Processes:
    """The processes that a handle starts, and the plan that notes what the handle does with them."""

    def __init__(self) -> None:
        self.started: list[Process] = []
        self.taken: list[Message] = []
        self.lost: list[tuple[str, list[str]]] = []
        self.failure: Exception | None = None
        begun = trio.Event()
        begun.set()
        self.plan = PoolFunctions(list, list, self._take, self._lose, list, self._start, begun)

    def _start(self, theirs: socket.socket) -> Process:
        self.started.append(Process(theirs))
        return self.started[-1]

    async def _take(self, message: Message) -> None:
        if self.failure is not None:
            raise self.failure
        self.taken.append(message)

    def _lose(self, reason: str, hosts: list[str]) -> None:
        self.lost.append((reason, hosts))

    async def number(self, number: int) -> Process:
        """Wait until this number of processes have started; the newest one is ready then."""
        newest = await self.newest(number)
        newest.link.post(Ready())
        return newest

    async def newest(self, number: int) -> Process:
        """Wait until this number of processes have started; the newest one is not ready."""
        await until(lambda: len(self.started) >= number)
        return self.started[-1]


@pytest.mark.trio
async def test_a_worker_whose_message_cannot_be_obeyed_is_accounted_for_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes, counters = Processes(), Counters()
    worker = Handle(0, processes.plan)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor(counters).keep_running, Task.WORKERS, worker.run)
        process = await processes.number(1)
        await worker.ready.wait()
        worker.change(ConnectionsChanged(["10.0.0.1"], []))
        processes.failure = ValueError()
        process.link.post(BrokerAddresses([]))
        await until(lambda: counters.task_failures[Task.WORKERS] == 1)
        assert processes.lost == [("failed", ["10.0.0.1"])]
        assert worker.connections == 0
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_all_that_a_worker_has_sent_before_its_end_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it ends without reading what the supervisor has sent, and the supervisor notices by sending."""
    processes = Processes()
    worker = Handle(0, processes.plan)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor().keep_running, Task.WORKERS, worker.run)
        process = await processes.number(1)
        await worker.ready.wait()
        worker.post(BrokerAddresses([]))
        sent = [ConnectionsChanged([str(number)], []) for number in range(100)]
        for message in sent:
            process.link.post(message)
        process.link.close()
        worker.post(BrokerAddresses([]))
        await until(lambda: bool(processes.lost))
        assert processes.taken == sent
        assert processes.lost == [("died", [])]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize("drained", [True, False])
async def test_a_worker_that_dies_while_it_drains_is_lost_and_not_replaced(
    monkeypatch: pytest.MonkeyPatch, drained: bool
) -> None:
    processes = Processes()
    worker = Handle(0, processes.plan)
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor().keep_running, Task.WORKERS, worker.run)
            process = await processes.number(1)
            await worker.ready.wait()
            worker.change(ConnectionsChanged(["10.0.0.1"], []))
            worker.drain()
            if drained:
                process.link.post(Drained())
                await until(lambda: not worker.alive)
            process.kill()
    assert len(processes.started) == 1
    assert processes.lost == ([] if drained else [("died", ["10.0.0.1"])])
    assert ("worker lost while it drained" in [line["event"] for line in logs]) is not drained


@pytest.mark.trio
async def test_a_worker_of_another_version_is_lost_as_replaced_and_the_log_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    processes = Processes()
    worker = Handle(3, processes.plan)
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor().keep_running, Task.WORKERS, worker.run)
            process = await processes.newest(1)
            process.exit_code = REPLACED
            process.kill()
            await processes.newest(2)
            nursery.cancel_scope.cancel()
    assert processes.lost[0] == ("replaced", [])
    (line,) = [line for line in logs if line["event"] == handles.REPLACED_ON_DISK]
    assert (line["log_level"], line["worker"], line["version"]) == ("error", 3, VERSION)


# Usage from before a process


CLIENTS = 400
GROUPS = QuotaGroups().updated({Member("user", "svc-", True): "payments"}, {"payments": ""})
EACH = QuotaTable({(Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE): 100.0}, groups=GROUPS)


@staged(brokers=(0, 1))
async def test_a_new_process_gets_usage_in_steps(stage: Stage) -> None:
    registry, now_ms = stage.server.quotas, stage.server.now_ms
    registry.use(EACH)
    for node_id in (0, 1):
        for number in range(CLIENTS):
            registry.of(node_id).ledger("", f"c{number}", now_ms).charge_produce(50, now_ms)
    async with pool_of(stage) as (pool, _ends):
        found = list(pool._state(0))
    brokers = [
        charge.used.quotas[0] for each in found if isinstance(each, Charges) for charge in each.charges
    ]
    assert [brokers.count(node_id) for node_id in (0, 1)] == [CLIENTS, CLIENTS]
    assert found.count(None) >= 2 * CLIENTS // 50


@staged(brokers=(0,))
async def test_a_new_process_gets_changed_quotas_before_usage_and_those_of_meanwhile_at_the_end(
    stage: Stage,
) -> None:
    """A worker drops usage of limiters that its quotas do not have."""
    registry, now_ms = stage.server.quotas, stage.server.now_ms
    registry.use(EACH)
    registry.of(0).ledger("", "c1", now_ms).charge_produce(50, now_ms)
    async with pool_of(stage) as (pool, _ends):
        handle = pool.handles[0]
        link, handle._link = handle._link, None  # it gets its state before it counts as ready
        messages = pool._state(0)
        found = [next(messages)]
        registry.use(QuotaTable())
        found += messages
        handle._link = link
    kinds = [type(each) for each in found if each is not None]
    assert kinds[:2] == [QuotasChanged, Charges]
    assert kinds[2:].count(QuotasChanged) == 1
    worker = QuotaRegistry(QuotaTable())
    tables = []
    for each in found:
        if isinstance(each, QuotasChanged):
            await QuotaFollower(worker).take(each)
            tables.append(worker.table)
    assert tables == [EACH, QuotaTable()]
    assert table_of(message_of(EACH, in_shadow=False)) == EACH


@staged(brokers=(0,))
async def test_a_changed_value_reaches_workers_alone_and_the_values_of_a_change_together(
    stage: Stage,
) -> None:
    values = {(Entity(f"user-{n}"), QuotaKey.PRODUCER_BYTE_RATE): 1.0 for n in range(3 * PART_MAX)}
    registry = stage.server.quotas
    registry.use(QuotaTable(values))
    worker = QuotaRegistry(registry.table)
    follower = QuotaFollower(worker)
    async with pool_of(stage) as (pool, ends):
        for number in range(len(ends)):
            list(pool._first(number))
        for changed in ([7], range(2 * PART_MAX)):
            for end in ends:
                end.messages.clear()
            before = worker.table
            registry.use(registry.table.altered({list(values)[n]: 2.0 + len(changed) for n in changed}))
            await until(lambda: all(any(each.is_last for each in end.of(QuotasChanged)) for end in ends))
            sent = ends[0].of(QuotasChanged)
            assert len(sent) == -(-len(changed) // PART_MAX)
            for message in sent:
                assert worker.table is before
                await follower.take(message)
            assert worker.table == registry.table
            assert worker.table.delta(before).number == len(changed)


@pytest.mark.trio
async def test_a_long_way_to_a_process_that_is_ready_does_not_count_as_its_silence() -> None:
    """While it gets its state, its messages wait to be read; then it would soon count as stuck."""

    def state() -> Iterator[Message | None]:
        handle._life.silent_looks = 100
        yield None

    async def take(_message: Message) -> None:
        raise AssertionError("no message comes")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        handle = Handle(
            0,
            PoolFunctions(
                lambda: (), state, take, lambda _reason, _lost: None, lambda: (), spawn_process, trio.Event()
            ),
        )
        handle._life.happen(WorkerEvent.START)
        await handle._begin(Link(ours))
        assert handle.silent_ms == 0
