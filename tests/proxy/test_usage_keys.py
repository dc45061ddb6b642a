"""No two usage records of an instance have the same key, because ingest takes such records for copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest
import trio
import trio.testing

from tests.proxy.supervised import supervisor
from tests.proxy.usage_totals import total
from weir.proxy.connection.usage import ConnectionUsage
from weir.proxy.connection.usage_counters import UsageCounters
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.control.usage.outlet import Record
from weir.proxy.control.usage.recorder import Clocks, UsageRecorder
from weir.proxy.control.usage.tally import Kind, Tally
from weir.quotas.table.bounded_names import OVERFLOW
from weir.quotas.table.groups import Member, QuotaGroups
from weir.usage import UsageRecord

NAMES: Final = ("a", "b", "c", "d", OVERFLOW)
BROKERS: Final = (None, 0, 1)
SEEDS: Final = 300
CLOCK_SEEDS: Final = 60
EPOCH_MS: Final = 1_763_775_570_000


def now_ms() -> int:
    return round(trio.current_time() * 1000)


def key(record: UsageRecord) -> tuple[str, int, int, str, str, str]:
    return (record.instance, record.broker, record.time_ms, record.user, record.client_id, record.api)


def test_a_late_response_to_a_removed_client_shares_the_record_of_its_new_connection() -> None:
    groups = QuotaGroups().updated({Member("client_id", "ap", True): "apps"}, {"apps": ""})
    registries = UsageRegistries(group_of=groups.of)
    first = registries.of(1)
    first.become("alice", "app")
    late = first.usage_counters(0, 0, 9)
    late.arrived(10, 0, 1)
    first.become("alice", "another")  # the first response is still to come
    (record,) = registries.drain(1000, 1000, "weir")
    assert (record.bytes_in, record.group) == (10, "apps")
    second = registries.of(1)
    second.become("alice", "app")
    second.usage_counters(0, 0, 9).arrived(20, 0, 2)
    second.usage_counters(0, 0, 9).answered(5, 0, 2, 400)
    late.answered(30, 0, 2, 7000)
    (record,) = registries.drain(2000, 1000, "weir")
    assert (record.requests, record.bytes_in, record.bytes_out) == (1, 20, 35)
    assert record.response_time_us == 7400


class Scene:
    """Connections of a few clients to a few brokers: requests, late responses, and drains that pause."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.registries = UsageRegistries(entities_max=self.random.choice([1, 2, 100]), trace_share=0.5)
        self.connections: list[ConnectionUsage] = []
        self.in_flight: list[UsageCounters] = []
        self.records: list[UsageRecord] = []
        self.draining: Iterator[UsageRecord] | None = None
        self.time_ms = 0
        self.sent: Counter[str] = Counter()

    def connect(self) -> None:
        if len(self.connections) < 6:
            self.connections.append(self.registries.of(self.random.choice(BROKERS)))
            self.connections[-1].become(self.random.choice(NAMES), self.random.choice(NAMES))

    def change_client(self) -> None:
        if self.connections:
            self.random.choice(self.connections).become(self.random.choice(NAMES), self.random.choice(NAMES))

    def ask(self) -> None:
        if self.connections:
            counters = self.random.choice(self.connections).usage_counters(self.random.randrange(2), 0, 9)
            counters.arrived(1, 0, 1)
            self.sent["requests"] += 1
            self.sent["bytes_in"] += 1
            self.in_flight.append(counters)

    def answer(self) -> None:
        if self.in_flight:
            counters = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
            counters.answered(1, 0, 1)
            counters.throttled(self.random.randrange(5), 3)
            self.sent["bytes_out"] += 1
            self.sent["throttle_ms"] += 3

    def end(self) -> None:
        if self.connections:
            self.connections.pop(self.random.randrange(len(self.connections))).end()

    def step(self) -> None:
        """Take one record of a drain, or begin a drain: the next interval."""
        if self.draining is None:
            self.time_ms += 1000
            self.draining = self.registries.drain(self.time_ms, 1000, "weir")
        record = next(self.draining, None)
        if record is None:
            self.draining = None
        else:
            self.records.append(record)

    def drain(self) -> None:
        self.step()
        while self.draining is not None:
            self.step()

    def act(self, *more: Callable[[], None]) -> None:
        """Something that a client does, or one of `more`."""
        self.random.choice(
            [self.connect, self.change_client, self.end, *[self.ask, self.answer] * 3, *more]
        )()

    def answer_all(self) -> None:
        while self.in_flight:
            self.answer()

    def check(self, seed: int) -> None:
        again = [each for each, count in Counter(map(key, self.records)).items() if count > 1]
        assert not again, f"seed {seed}: {again}"
        sums = total(self.records)
        found = {name: int(sums.get(name, 0)) for name in ("requests", "bytes_in", "bytes_out")}
        found["throttle_ms"] = int(sum(value for name, value in sums.items() if name.endswith(" ms")))
        assert found == {name: self.sent[name] for name in found}, f"seed {seed}"


def test_no_two_usage_records_of_an_instance_have_the_same_key() -> None:
    for seed in range(SEEDS):
        scene = Scene(seed)
        for _step in range(120):
            scene.act(scene.drain, scene.step, scene.step, scene.step)
        scene.answer_all()
        scene.drain()
        scene.drain()
        scene.check(seed)


@dataclass
class Sink:
    records: list[UsageRecord]
    tally: Tally = field(default_factory=Tally)

    def start(self) -> None:
        pass

    def put(self, kind: Kind, records: Sequence[Record]) -> None:
        if kind is Kind.USAGE:
            self.records += [record for record in records if isinstance(record, UsageRecord)]

    def close(self, timeout_s: float) -> None:
        pass

    def report(self, *, last: bool = False) -> None:
        """The recorder's log lines are no matter here."""


@pytest.mark.trio
async def test_usage_records_have_keys_of_their_own_while_the_clock_is_set_and_at_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for seed in range(CLOCK_SEEDS):
        scene, set_ms = Scene(seed), 0
        scene.connect()
        clocks = Clocks(lambda: EPOCH_MS + now_ms() + set_ms, now_ms)  # noqa: B023  # read in this turn only
        sink = Sink(scene.records)
        recorder = UsageRecorder(scene.registries, sink, "weir", 1000, clocks, sink.report, supervisor())
        async with trio.open_nursery() as nursery:
            await nursery.start(recorder.run)
            for _step in range(100):
                scene.act()
                await trio.sleep(scene.random.choice([0, 0.02, 0.3, 1.1]))
                if scene.random.random() < 0.05:
                    set_ms += scene.random.choice([-3_600_000, -1500, -1000, -130, -40, 60, 1000, 90_000])
            scene.answer_all()
            nursery.cancel_scope.cancel()
        scene.check(seed)
