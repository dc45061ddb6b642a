"""The supervisor's pool, with workers that the tests play: no processes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.proxy.rigs import reset, tcp_pair
from tests.proxy.stage import Stage, until
from tests.proxy.supervised import supervisor
from tests.proxy.worker_rigs import PEER, Heard, connect, disconnect, new_pool
from tests.scripted import staged
from weir.proxy.addresses import Address
from weir.proxy.build import VERSION
from weir.proxy.close_reasons import CloseReason
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.supervisor import Task
from weir.proxy.counters import Counters
from weir.proxy.server.refusals import RefusalError
from weir.proxy.server.target import BOOTSTRAP, Target
from weir.proxy.workers import handle as handles
from weir.proxy.workers.exit_codes import REPLACED
from weir.proxy.workers.handle import Handle, Plan
from weir.proxy.workers.link import Link
from weir.proxy.workers.messages import (
    Away,
    Brokers,
    Charges,
    Client,
    Drain,
    Drained,
    Left,
    Message,
    Quotas,
    QuotasChanged,
    Ready,
)
from weir.proxy.workers.pool import Pool
from weir.proxy.workers.quota_follower import PART_MAX, QuotaFollower
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable


@asynccontextmanager
async def pool_of(stage: Stage) -> AsyncIterator[tuple[Pool, list[Heard]]]:
    """A pool for the stage's server, and its workers' ends of the links."""
    pool = new_pool(stage.server, stage.server._reactor)
    ends = connect(pool)
    async with trio.open_nursery() as nursery:
        pool._nursery = nursery
        for end in ends:
            nursery.start_soon(end.receive)
        yield pool, ends
        nursery.cancel_scope.cancel()
    disconnect(pool, ends)


# Listeners


@staged(brokers=(0, 1))
async def test_a_broker_whose_listener_refuses_clients_for_a_worker_is_shown_as_refusing(
    stage: Stage,
) -> None:
    async with pool_of(stage) as (pool, _ends):
        await pool._take(0, Away(0, away=True))
        await until(lambda: stage.server.refusing == {0})
        await pool._take(0, Away(0, away=False))
        await until(lambda: stage.server.refusing == set())


@staged()
async def test_a_failure_while_a_listener_refuses_clients_ends_only_the_refusal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_args: object) -> None:
        raise ValueError

    async with pool_of(stage) as (pool, _ends):
        monkeypatch.setattr(stage.server.listeners, "refuse", refuse)
        await pool._take(0, Away(0, away=True))
        await until(lambda: stage.server.counters.task_failures[Task.WORKERS] == 1)
        await pool._take(0, Away(0, away=True))
        await until(lambda: stage.server.counters.task_failures[Task.WORKERS] == 2)


# Bootstrap connections


@staged(brokers=(0, 1, 2))
async def test_a_bootstrap_client_goes_to_another_broker_if_the_first_cannot_be_reached(stage: Stage) -> None:
    """As with one process: the client notices nothing."""
    async with pool_of(stage) as (pool, ends):
        stage.brokers[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        (near, far) = tcp_pair()
        await pool.receive(near, BOOTSTRAP, Address(*PEER))
        await until(lambda: any(end.of(Client) for end in ends))
        (client,) = [message for end in ends for message in end.of(Client)]
        assert (client.node_id, client.bootstrap) == (1, True)
        far.close()


# Lost workers


class Process:
    pid = 1
    exit_code = -9

    def __init__(self, theirs: socket.socket) -> None:
        self.link = Link(theirs.dup())

    def kill(self) -> None:
        self.link.close()

    def wait(self) -> int:
        return self.exit_code


class Processes:
    """The processes that a handle starts, and the plan that notes what the handle does with them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[Process] = []
        self.taken: list[Message] = []
        self.lost: list[tuple[str, list[str]]] = []
        self.refused: list[tuple[str, CloseReason]] = []
        self.failure: Exception | None = None
        monkeypatch.setattr(handles, "_start", self._start)
        self.plan = Plan(list, list, self._take, self._lose, self._refuse)

    def _start(self, theirs: socket.socket) -> Process:
        self.started.append(Process(theirs))
        return self.started[-1]

    async def _take(self, message: Message) -> None:
        if self.failure is not None:
            raise self.failure
        self.taken.append(message)

    def _refuse(self, client: Client, refusal: RefusalError) -> None:
        self.refused.append((client.host, refusal.reason))

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
    processes, counters = Processes(monkeypatch), Counters()
    worker = Handle(0, processes.plan)
    near, far = socket.socketpair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor(counters).keep_running, Task.WORKERS, worker.run)
        process = await processes.number(1)
        await worker.ready.wait()
        worker.give(Client(0, False, *PEER), near)
        processes.failure = ValueError()
        process.link.post(Left([]))
        await until(lambda: counters.task_failures[Task.WORKERS] == 1)
        assert processes.lost == [("failed", [PEER[0]])]
        assert worker.connections == 0
        nursery.cancel_scope.cancel()
    far.close()


@pytest.mark.trio
async def test_all_that_a_worker_has_sent_before_its_end_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it ends without reading what the supervisor has sent, and the supervisor notices by sending."""
    processes = Processes(monkeypatch)
    worker = Handle(0, processes.plan)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor().keep_running, Task.WORKERS, worker.run)
        process = await processes.number(1)
        await worker.ready.wait()
        worker.post(Brokers([]))
        sent = [Left([str(number)]) for number in range(100)]
        for message in sent:
            process.link.post(message)
        process.link.close()
        worker.post(Brokers([]))
        await until(lambda: bool(processes.lost))
        assert processes.taken == sent
        assert processes.lost == [("died", [])]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize("drained", [True, False])
async def test_a_worker_that_dies_while_it_drains_is_lost_and_not_replaced(
    monkeypatch: pytest.MonkeyPatch, drained: bool
) -> None:
    processes = Processes(monkeypatch)
    worker = Handle(0, processes.plan)
    near, far = socket.socketpair()
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor().keep_running, Task.WORKERS, worker.run)
            process = await processes.number(1)
            await worker.ready.wait()
            worker.give(Client(0, False, *PEER), near)
            worker.drain()
            if drained:
                process.link.post(Drained())
                await until(lambda: not worker.alive)
            process.kill()
    assert len(processes.started) == 1
    assert processes.lost == ([] if drained else [("died", [PEER[0]])])
    assert ("worker lost while it drained" in [line["event"] for line in logs]) is not drained
    far.close()


@pytest.mark.trio
async def test_a_client_that_a_dying_worker_did_not_get_while_it_drained_is_served_by_another(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    processes = Processes(monkeypatch)
    worker = Handle(0, processes.plan)
    near, far = socket.socketpair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor().keep_running, Task.WORKERS, worker.run)
        process = await processes.number(1)
        await worker.ready.wait()
        process.kill()
        worker.give(Client(0, False, *PEER), near)
        worker.drain()
        with trio.fail_after(60):
            second = await processes.number(2)
            assert await received(second.link, Client)
            assert await received(second.link, Drain)
        second.link.post(Drained())
        second.kill()
    assert len(processes.started) == 2
    far.close()


@pytest.mark.trio
async def test_a_worker_of_another_version_is_lost_as_replaced_and_the_log_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    processes = Processes(monkeypatch)
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


async def looking(worker: Handle) -> None:
    while True:
        await trio.sleep(handles.LOOK_S)
        worker.refuse_waiting()


@pytest.mark.trio
async def test_a_client_that_waits_too_long_for_a_worker_is_closed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    processes = Processes(monkeypatch)
    worker = Handle(0, processes.plan)
    near, far = tcp_pair()
    late_near, late_far = tcp_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looking, worker)
        worker.give(Client(0, False, "10.0.0.1", 1), near)
        await trio.sleep(handles.WAITING_S_MAX - 5)
        worker.give(Client(0, False, "10.0.0.2", 2), late_near)
        await until(lambda: bool(processes.refused))
        assert trio.current_time() <= handles.WAITING_S_MAX + handles.LOOK_S
        assert processes.refused == [("10.0.0.1", CloseReason.WORKER_AWAY)]
        assert worker.connections == 1
        assert far.recv(1) == b""
        nursery.cancel_scope.cancel()
    for sock in (far, late_near, late_far):
        sock.close()


@pytest.mark.trio
async def test_a_client_that_each_process_returns_unsent_waits_no_longer_than_others(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """As if each process died while it reads a large state, behind which clients are sent."""
    processes = Processes(monkeypatch)
    state = Quotas(bytes(4_000_000), in_shadow=False)
    worker = Handle(0, processes.plan._replace(state=lambda: [state]))
    near, far = tcp_pair()

    async def die_again_and_again() -> None:
        for number in range(1, 1000):
            process = await processes.number(number)
            await until(lambda: worker.alive)
            process.kill()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor().keep_running, Task.WORKERS, worker.run)
        nursery.start_soon(looking, worker)
        nursery.start_soon(die_again_and_again)
        worker.give(Client(0, False, *PEER), near)
        with trio.fail_after(300):
            await until(lambda: bool(processes.refused))
        assert trio.current_time() <= handles.WAITING_S_MAX + handles.WAIT_S_MAX + 1
        assert processes.refused == [(PEER[0], CloseReason.WORKER_AWAY)]
        nursery.cancel_scope.cancel()
    far.close()


@pytest.mark.trio
async def test_a_client_that_resets_while_it_waits_for_a_worker_is_noticed_and_others_wait_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that has closed may have sent requests without a response (acks=0)."""
    processes = Processes(monkeypatch)
    worker = Handle(0, processes.plan)
    (near, far), (closed, other) = tcp_pair(), tcp_pair()
    worker.give(Client(0, False, *PEER), near)
    worker.give(Client(0, False, *PEER), closed)
    other.sendall(b"a request")
    other.close()
    reset(far)
    await until(lambda: bool(handles._gone([near])))
    worker.refuse_waiting()
    assert processes.refused == [(PEER[0], CloseReason.CLIENT_RESET)]
    assert worker.connections == 1
    closed.close()


@staged(brokers=(0, 1))
async def test_a_client_that_waited_too_long_for_a_worker_gives_back_its_place(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "WAITING_S_MAX", 0.0)
    async with pool_of(stage) as (pool, _ends):
        worker = pool.handles[pool.owner(0)]
        worker._link, link = None, worker._link
        near, far = tcp_pair()
        await pool.receive(near, Target(0), Address(*PEER))
        assert (stage.server.counters.sessions_open, worker.connections) == (1, 1)
        await pool._refuse_waiting()
        assert (stage.server.counters.sessions_open, worker.connections) == (0, 0)
        assert stage.server.counters.closed_at[CloseReason.WORKER_AWAY, 0] == 1
        worker._link = link
        far.close()


async def received(link: Link, kind: type[Message]) -> bool:
    """Read the next message; return True if it is of this kind. Closes a socket that comes with it."""
    message, sock = await link.receive()
    if sock is not None:
        sock.close()
    return isinstance(message, kind)


# Usage from before a process


CLIENTS = 400
EACH = QuotaTable({(Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE): 100.0})


@staged(brokers=(0, 1))
async def test_a_brokers_usage_is_sent_in_steps_and_once_before_its_first_clients(stage: Stage) -> None:
    registry, now_ms = stage.server.quotas, stage.server._reactor.now_ms
    registry.use(EACH)
    for number in range(CLIENTS):
        registry.of(1).ledger("", f"c{number}", now_ms).charge_produce(50, now_ms)
    async with pool_of(stage) as (pool, ends), trio.open_nursery() as nursery:
        pairs = [tcp_pair() for _ in range(2)]
        for near, _far in pairs:
            nursery.start_soon(pool.receive, near, Target(1), Address(*PEER))
        await until(lambda: any(len(end.of(Client)) == 2 for end in ends))
        (end,) = [end for end in ends if end.of(Client)]
        for _near, far in pairs:
            far.close()
    found = [each for each in end.messages if isinstance(each, Charges | Client)]
    assert [type(each) for each in found[-2:]] == [Client, Client]
    sent = end.of(Charges)
    tags = [charge.used.tags.client_id for each in sent for charge in each.charges]
    assert sorted(tags) == sorted(f"c{number}" for number in range(CLIENTS))
    assert len(sent) >= CLIENTS // 50  # a step reads 50 limiters


@staged(brokers=(0, 1))
async def test_a_new_process_gets_usage_in_steps_also_of_brokers_that_are_new_meanwhile(stage: Stage) -> None:
    registry, now_ms = stage.server.quotas, stage.server._reactor.now_ms
    registry.use(EACH)
    for node_id in (0, 1):
        for number in range(CLIENTS):
            registry.of(node_id).ledger("", f"c{number}", now_ms).charge_produce(50, now_ms)
    async with pool_of(stage) as (pool, _ends):
        pool._owners[0] = 0
        messages = pool._state(0)
        first = next(messages)
        pool._owners[1] = 0
        found = [first, *messages]
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
    registry, now_ms = stage.server.quotas, stage.server._reactor.now_ms
    registry.use(EACH)
    registry.of(0).ledger("", "c1", now_ms).charge_produce(50, now_ms)
    async with pool_of(stage) as (pool, _ends):
        pool._owners[0] = 0
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
        handle._silent = 100
        yield None

    async def take(_message: Message) -> None:
        raise AssertionError("no message comes")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        handle = Handle(
            0, Plan(lambda: (), state, take, lambda _reason, _lost: None, lambda _client, _refusal: None)
        )
        await handle._begin(Link(ours))
        assert handle.silent_ms == 0
