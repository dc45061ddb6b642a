"""Before a take-over, the supervisor waits until its workers have told all charges."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
import trio.testing

from tests.proxy.stage import Stage
from tests.proxy.worker_rigs import connect, disconnect, new_pool, running_worker
from tests.scripted import staged
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.net.reactor import Reactor
from weir.proxy.workers.charges import ChargeReader, LimiterCharge
from weir.proxy.workers.charges_sender import ChargesSender
from weir.proxy.workers.handle import Handle, PoolFunctions, spawn_process
from weir.proxy.workers.messages import Charges, Flush, Flushed
from weir.proxy.workers.questions import FLUSH_S, Questions
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.handover import UsedUnits
from weir.quotas.registry import SLICE
from weir.quotas.table.entities import Tags

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
TABLE = QuotaTable({(Entity(client_id="each"), PRODUCE): 100.0})
EACH_CLIENT = QuotaTable({(Entity(client_id=DEFAULT), PRODUCE): 100.0})


async def _nothing(_message: object) -> None:
    pass


PLAN = PoolFunctions(list, list, _nothing, lambda _reason, _hosts: None, list, spawn_process, trio.Event())


class Worker(Handle):
    def __init__(self, number: int, *, alive: bool = True) -> None:
        super().__init__(number, PLAN)
        self.asked: list[object] = []
        self._alive = alive

    @property
    def alive(self) -> bool:
        return self._alive

    def post(self, message: object, socks: object = ()) -> None:  # noqa: ARG002  # none is sent
        self.asked.append(message)


@pytest.mark.trio
async def test_a_worker_tells_all_charges_before_it_answers_a_flush() -> None:
    async with running_worker(TABLE) as rig:
        now_ms = rig.reactor.now_ms
        rig.registry.of(1).ledger("", "each", now_ms).charge_produce(5_000, now_ms)
        rig.link.post(Flush(3))
        assert await rig.hear(Flushed) == [Flushed(3)]
        (charges,) = rig.of(Charges)
        assert [charge.used.charges for charge in charges.charges] == [[(0, 5_000.0)]]
        assert rig.messages.index(charges) < rig.messages.index(Flushed(3))


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor(lambda: 1_000_000)
    yield reactor
    reactor.close()


def sender_of(registry: QuotaRegistry, reactor: Reactor, posted: list[Charges]) -> ChargesSender:
    return ChargesSender(reactor, ChargeReader(registry), posted.append, lambda _some: None)


def charge_clients(registry: QuotaRegistry, number: int, now_ms: int) -> None:
    for client in range(number):
        registry.of(1).ledger("", f"client {client}", now_ms).charge_produce(1, now_ms)


def units_of(posted: list[Charges]) -> float:
    every = [charge for message in posted for charge in message.charges]
    return sum(units for charge in every for _age_ms, units in charge.used.charges)


def test_a_flush_tells_the_charges_that_a_look_under_way_has_read(reactor: Reactor) -> None:
    posted, registry = list[Charges](), QuotaRegistry(EACH_CLIENT)
    charge_clients(registry, 2 * SLICE, reactor.now_ms)
    sender = sender_of(registry, reactor, posted)
    under_way = sender.send_rest()
    next(under_way)  # it pauses after a part of the limiters
    for _step in sender.send_rest():
        pass
    assert units_of(posted) == 2 * SLICE


def test_charges_that_a_look_has_read_before_an_exception_are_told(reactor: Reactor) -> None:
    class Failing(ChargeReader):
        def look(self, now_ms: int, *, everything: bool = False) -> Iterator[LimiterCharge | None]:
            for number, charge in enumerate(super().look(now_ms, everything=everything)):
                yield charge
                if number == 50:
                    raise ValueError

    posted, registry = list[Charges](), QuotaRegistry(EACH_CLIENT)
    charge_clients(registry, 100, reactor.now_ms)
    sender = ChargesSender(reactor, Failing(registry), posted.append, lambda _some: None)
    with pytest.raises(ValueError):  # noqa: PT011
        list(sender.send_rest())
    list(sender_of(registry, reactor, posted).send_rest())
    assert units_of(posted) == 100


@pytest.mark.trio
async def test_a_flush_ends_when_all_running_workers_have_answered_the_latest_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    workers = [Worker(0), Worker(1), Worker(2, alive=False)]
    flushes: Questions[None] = Questions(workers, FLUSH_S)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flushes.ask, Flush)
        await trio.testing.wait_all_tasks_blocked()
        for worker in workers[:2]:
            flushes.take(worker.number, 0, None)  # an answer that came too late
        flushes.take(0, 1, None)
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        flushes.take(1, 1, None)
    assert trio.current_time() == 0
    assert workers[0].asked == [Flush(1)]


@pytest.mark.trio
async def test_a_flush_waits_for_a_silent_worker_for_a_second_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await Questions[None]([Worker(0)], FLUSH_S).ask(Flush)
    assert trio.current_time() == pytest.approx(FLUSH_S, abs=0.01)


@staged()
async def test_workers_get_what_clients_of_a_former_weir_have_used(stage: Stage) -> None:
    pool = new_pool(stage.server)
    ends = connect(pool)
    shared = UsedUnits((None, "cluster produce", False), Tags("u", "c"), [(5, 7.0)], 3)
    own = UsedUnits((1, "produce", False), Tags("u", "c"), [(5, 7.0)], 3)
    pool.inherit([shared, own])
    for end in ends:
        message, _socks = await end.link.receive()
        assert isinstance(message, Charges)
        assert [charge.used for charge in message.charges] == [shared, own]
    disconnect(pool, ends)
