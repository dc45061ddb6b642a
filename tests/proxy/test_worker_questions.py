"""What the supervisor asks its workers, and what they report: peers of entities, waits, buffered bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import pytest
import trio
import trio.testing

from tests.proxy.snapshot_rigs import ALICE, PRODUCE, World
from tests.proxy.wire import Wire
from tests.wire.frames import framed
from weir.proxy import logs
from weir.proxy.config import config
from weir.proxy.control.peers import PEERS_MAX, EntityPeers, Peers, WantedPeers
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.snapshots.entities import EntityFilter, read_throttled
from weir.proxy.control.snapshots.gauges import Gauges
from weir.proxy.counters import Counters
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.data_plane import DataPlane
from weir.proxy.server.server import Server
from weir.proxy.workers.counts import WorkerCounts, add, increase, loaded, read
from weir.proxy.workers.handle import Handle
from weir.proxy.workers.messages import ListConnections, ListPeers, Message, PeersListed, decoded, encoded
from weir.proxy.workers.questions import WAIT_S, Answerer, PeerLists
from weir.quotas import Entity, QuotaKey, QuotaTable, Tags
from weir.quotas.table.options import Options, Scope

ETL = EntityPeers(PRODUCE, Tags("alice", "etl"), 2)


class Worker:
    """A worker without a process, and its `Handle` at the supervisor."""

    alive = True

    def __init__(self, number: int, world: World) -> None:
        self.number = number
        self.world = world
        self.silent_ms = 0
        self.asked = 0
        self.take: Callable[[int, Message], None] = lambda _number, _message: None
        self.answerer = Answerer(world.sources, world.relays, self._answer)

    def post(self, message: Message) -> None:
        found = decoded(encoded(message))
        assert isinstance(found, ListPeers | ListConnections)
        self.asked += 1
        self.answerer.take(found)

    def _answer(self, message: Message) -> None:
        self.take(self.number, decoded(encoded(message)))


def lists_of(workers: list[Worker]) -> PeerLists:
    lists = PeerLists(cast("list[Handle]", workers))

    def take(number: int, message: Message) -> None:
        assert isinstance(message, PeersListed)
        lists.questions.take(number, message.number, message.peers)

    for worker in workers:
        worker.take = take
    return lists


def asked(workers: list[Worker], *entities: EntityPeers, silent: int | None = None) -> list[Peers]:
    """The peers that workers tell; the worker with the number `silent` does not answer."""

    async def act() -> list[Peers]:
        lists = lists_of(workers)
        async with trio.open_nursery() as nursery:
            for worker in workers:
                if worker.number != silent:
                    nursery.start_soon(worker.answerer.run, lambda: None)
            found = await lists.read(WantedPeers(list(entities)))
            nursery.cancel_scope.cancel()
        return found

    return trio.run(act, clock=trio.testing.MockClock(autojump_threshold=0))


def two_workers(entity: Entity = ALICE) -> list[Worker]:
    return [Worker(number, World(entity)) for number in range(2)]


def test_peers_of_an_entity_are_those_at_all_workers() -> None:
    first, second = workers = two_workers()
    first.world.connect(library="librdkafka 2.5.0")
    first.world.connect(peer="10.0.0.8:1", client_id=b"other")
    second.world.connect(library="sarama 1")
    second.world.connect(peer="10.0.0.9:1")
    found, nothing = asked(workers, ETL, EntityPeers(PRODUCE, Tags("alice", "unknown"), 2))
    assert found.count == 3
    assert set(found.addresses) == {"10.0.0.7", "10.0.0.9"}
    assert set(found.software) == {"librdkafka 2.5.0", "sarama 1"}
    assert nothing == Peers()


def test_addresses_and_libraries_of_many_workers_are_bounded() -> None:
    workers = two_workers()
    for number in range(4 * PEERS_MAX):
        workers[number % 2].world.connect(peer=f"10.0.0.{number}:1", library=f"library {number}")
    (found,) = asked(workers, ETL)
    assert (found.count, len(found.addresses), len(found.software)) == (4 * PEERS_MAX, PEERS_MAX, PEERS_MAX)


def test_peers_of_another_broker_are_not_counted_unless_any_broker_is_meant() -> None:
    workers = two_workers()
    workers[0].world.connect()
    workers[0].world.registry.of(3).ledger("alice", "etl", 0)
    elsewhere, anywhere = asked(
        workers, EntityPeers(PRODUCE, ETL.tags, 3), EntityPeers(PRODUCE, Tags("alice", "etl"))
    )
    assert (elsewhere.count, anywhere.count) == (0, 1)


def test_peers_of_a_quota_that_brokers_share_and_of_mutations_are_found() -> None:
    mutations = QuotaKey.CONTROLLER_MUTATION_RATE
    workers = two_workers()
    table = QuotaTable(
        {(ALICE, PRODUCE): 1000.0, (ALICE, mutations): 5.0},
        options={(ALICE, PRODUCE): Options(scope=Scope.CLUSTER)},
    )
    for worker in workers:
        worker.world.registry.use(table)
        worker.world.connect()
        worker.world.registry.of(2).mutation_ledger("alice", "etl", 0)
    tags = Tags("alice", "etl")
    found = asked(workers, EntityPeers(PRODUCE, tags, "cluster"), EntityPeers(mutations, tags, "cluster"))
    assert [each.count for each in found] == [2, 2]


def test_a_client_with_a_name_that_utf_8_cannot_encode_is_found() -> None:
    workers = two_workers()
    (found,) = asked(workers, EntityPeers(PRODUCE, Tags("alice", "half \ud800"), 2))
    assert found.count == 0


def test_a_worker_that_hangs_takes_its_peers_along_and_no_others() -> None:
    workers = two_workers()
    for worker in workers:
        worker.world.connect()
    (found,) = asked(workers, ETL, silent=0)
    assert found.count == 1


def test_a_worker_without_a_sign_of_life_is_not_waited_for() -> None:
    workers = two_workers()
    for worker in workers:
        worker.world.connect()
    workers[0].silent_ms = int(WAIT_S * 1000)
    (found,) = asked(workers, ETL)
    assert (found.count, workers[0].asked) == (1, 0)


def test_workers_are_not_asked_for_nothing() -> None:
    workers = two_workers()
    assert asked(workers) == []
    assert [worker.asked for worker in workers] == [0, 0]


def test_the_throttled_entities_of_the_supervisor_have_the_connections_of_workers() -> None:
    workers = two_workers()
    workers[1].world.connect(library="librdkafka 2.5.0")
    supervisor = World()
    supervisor.budget().charge(12_000, 0)

    async def act() -> None:
        lists = lists_of(workers)
        sources = replace(supervisor.sources, read_peers=lists.read)
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker.answerer.run, lambda: None)
            (entity,) = (await read_throttled(sources, supervisor.history, EntityFilter())).entities
            nursery.cancel_scope.cancel()
        assert (entity.connections, entity.peers, entity.software) == (
            1,
            ("10.0.0.7",),
            ("librdkafka 2.5.0",),
        )
        assert entity.sentence.endswith("1 connection from 10.0.0.7 (librdkafka 2.5.0)")

    trio.run(act)


# Reports


class Plane:
    def __init__(self, world: World) -> None:
        self.counters = Counters()
        self.relays = world.relays

    def requests(self) -> Counter[tuple[int, int]]:
        return Counter()


def counts_of(world: World, reactor: Reactor) -> WorkerCounts:
    """The counters of a process with the connections of `world`."""
    steps = read(cast("DataPlane", Plane(world)), reactor)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("WorkerCounts", end.value)


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor(lambda: 0)
    yield made
    made.close()


def wait_for_broker(world: World) -> None:
    Wire(world.connect()).feed(0, client=framed(b"\0\x03\0\0\0\0\0\1\xff\xff\0\0\0\0"))


def test_a_report_counts_connections_that_wait_for_a_broker_or_a_throttle(reactor: Reactor) -> None:
    world = World()
    wait_for_broker(world)
    world.connect(peer="10.0.0.8:1").mute(5000, PRODUCE)
    reactor.now_ms = 1000
    found = counts_of(world, reactor)
    assert {opened.rates.in_bytes_per_s for opened in world.relays.values()} == {30.0}
    gauges = found.gauges
    assert (gauges.connections, gauges.waiting, gauges.throttled) == ({2: 2}, {2: 1}, {PRODUCE: 1})


def test_a_report_has_the_bytes_that_wait_to_be_sent(reactor: Reactor) -> None:
    reactor.buffered.bytes, reactor.buffered.full, reactor.buffered.stops = 3000, True, 4
    before = counts_of(World(), reactor)
    reactor.buffered.bytes, reactor.buffered.full, reactor.buffered.stops = 100, False, 6
    now = increase(counts_of(World(), reactor), before)
    assert (before.gauges.buffered_bytes, before.gauges.reading_stopped) == (3000, True)
    assert (now.gauges.buffered_bytes, now.gauges.reading_stopped) == (100, False)
    assert [counts.counters["reading_stops"] for counts in (before, now)] == [4, 2]


def test_lost_log_lines_of_workers_are_counted_by_the_supervisor(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Server(config.load(None, {"upstream": "broker:1"}), QuotaRegistry(QuotaTable()))
    before, lost = counts_of(World(), reactor), logs.lost_lines()
    with monkeypatch.context() as worker:
        worker.setattr(logs, "lost_lines", lambda: lost + 7)
        now = increase(counts_of(World(), reactor), before)
    add(loaded(now.pickled()), supervisor)
    assert supervisor.log_lines_lost == logs.lost_lines() + 7


def test_the_supervisor_sums_up_what_its_workers_have_reported_last(reactor: Reactor) -> None:
    first, second = World(), World()
    for world in (first, second):
        wait_for_broker(world)
        world.connect(peer="10.0.0.8:1").mute(5000, PRODUCE)
    reactor.buffered.bytes = 3000
    latest = [counts_of(world, reactor).gauges for world in (first, second)]
    sums = Gauges()
    sums.sum_up(latest)
    assert sums == Gauges(Counter({2: 4}), Counter({2: 2}), Counter({PRODUCE: 2}), 6000)
    sums.sum_up(latest[:1])
    assert sums == Gauges(Counter({2: 2}), Counter({2: 1}), Counter({PRODUCE: 1}), 3000)
