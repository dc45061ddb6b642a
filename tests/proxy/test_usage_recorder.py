"""The recorder: when it takes records, in what pieces, and what it does at the end. The clock is a mock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.proxy.supervised import supervisor
from tests.proxy.usage_rigs import usage_record
from weir.proxy.control.usage import recorder as module
from weir.proxy.control.usage.outlet import Record
from weir.proxy.control.usage.recorder import SLICE, Clocks, UsageRecorder
from weir.proxy.control.usage.tally import Kind, Loss, Tally
from weir.usage import TraceRecord, UsageRecord

pytestmark = pytest.mark.trio

EPOCH_MS = 1_763_775_570_000


def now_ms() -> int:
    return round(trio.current_time() * 1000)


@dataclass
class FakeRegistries:
    """Hands out records that it is given, and notes what it was asked."""

    records: list[UsageRecord] = field(default_factory=list)
    traces: list[TraceRecord] = field(default_factory=list)
    traces_dropped: int = 0
    intervals: list[tuple[int, int]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    instances: set[str] = field(default_factory=set)
    keys: list[tuple[str, int]] = field(default_factory=list)
    buggy: bool = False

    def drain(self, time_ms: int, interval_ms: int, instance: str) -> Iterator[UsageRecord]:
        self.intervals.append((time_ms, interval_ms))
        self.instances.add(instance)
        self.keys.append((instance, time_ms))
        if self.buggy:
            raise ZeroDivisionError
        taken, self.records = self.records, []
        yield from taken

    def take_traces(self, offset_ms: int, instance: str) -> Iterator[TraceRecord]:
        self.offsets.append(offset_ms)
        self.instances.add(instance)
        taken, self.traces = self.traces, []
        yield from taken


@dataclass
class FakeSink:
    tally: Tally = field(default_factory=Tally)
    got: list[tuple[Kind, Sequence[Record]]] = field(default_factory=list)
    started: bool = False
    closed: list[float] = field(default_factory=list)

    def start(self) -> None:
        self.started = True

    def put(self, kind: Kind, records: Sequence[Record]) -> None:
        assert self.started
        assert not self.closed
        self.got.append((kind, records))

    def close(self, timeout_s: float) -> None:
        self.closed.append(timeout_s)


@dataclass
class Scene:
    """A recorder at a time that Trio's clock moves; `set_ms` is how far the wall clock was set."""

    interval_ms: int = 1000
    start_ms: int = EPOCH_MS
    registries: FakeRegistries = field(default_factory=FakeRegistries)
    sink: FakeSink = field(default_factory=FakeSink)
    set_ms: int = 0
    reports: list[bool] = field(default_factory=list)

    def wall_ms(self) -> int:
        return self.start_ms + self.set_ms + now_ms() - self._origin_ms

    def make(self) -> UsageRecorder:
        self._origin_ms = now_ms()
        clocks = Clocks(self.wall_ms, now_ms)
        return UsageRecorder(
            self.registries, self.sink, "weir", self.interval_ms, clocks, self.report, supervisor()
        )

    def report(self, *, last: bool = False) -> None:
        self.reports.append(last)


async def record_for(scene: Scene, seconds: float) -> None:
    recorder = scene.make()
    async with trio.open_nursery() as nursery:
        await nursery.start(recorder.run)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()


async def test_the_usage_recorder_ends_intervals_at_multiples_and_at_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = Scene(start_ms=EPOCH_MS + 250)
    await record_for(scene, 3.0)
    assert scene.registries.intervals == [
        (EPOCH_MS + 250, 750),
        (EPOCH_MS + 1000, 1000),
        (EPOCH_MS + 2000, 1000),
        (EPOCH_MS + 3000, 250),
    ]
    assert scene.registries.instances == {"weir"}
    assert scene.sink.closed == [module.CLOSE_S]
    assert scene.reports == [False, False, False, False, True]


async def test_the_usage_recorder_takes_many_records_in_slices(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = Scene()
    scene.registries.records = [usage_record(number) for number in range(2 * SLICE + 1)]
    seen: list[int] = []

    async def look() -> None:
        while True:
            seen.append(len(scene.sink.got))
            await trio.lowlevel.checkpoint()

    recorder = scene.make()
    async with trio.open_nursery() as nursery:
        await nursery.start(recorder.run)
        await trio.sleep(0.99)
        nursery.start_soon(look)
        while len(scene.sink.got) < 3:  # the clock stands still while anybody is busy
            await trio.lowlevel.checkpoint()
            autojump_clock.jump(0.001)
        nursery.cancel_scope.cancel()
    assert [len(records) for _kind, records in scene.sink.got] == [SLICE, SLICE, 1]
    assert {1, 2} & set(seen)


@pytest.mark.parametrize("step_ms", [-3_600_000, -700, 3_600_000])
async def test_the_usage_recorder_logs_a_changed_clock_and_continues(
    autojump_clock: trio.testing.MockClock, step_ms: int
) -> None:
    scene = Scene()
    recorder = scene.make()
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            await nursery.start(recorder.run)
            await trio.sleep(1.5)
            scene.set_ms = step_ms
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
    assert [(line["event"], line["stepped_ms"]) for line in logs] == [("the clock was set", step_ms)]
    lengths = [length for _time, length in scene.registries.intervals]
    assert sum(lengths) == 6500
    assert all(0 < length <= 1000 for length in lengths)
    assert sum(time % 1000 == 0 for time, _length in scene.registries.intervals) >= 4
    before, after = scene.registries.offsets[0], scene.registries.offsets[-1]
    assert after - before == step_ms
    assert len(set(scene.registries.offsets)) == 2


async def test_the_usage_recorder_counts_dropped_traces_once(autojump_clock: trio.testing.MockClock) -> None:
    scene = Scene()
    scene.registries.traces_dropped = 7
    await record_for(scene, 3.5)
    assert scene.sink.tally.dropped[Loss.TRACES_MAX] == 7


async def test_a_bug_in_the_usage_registry_is_logged_and_recording_continues(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = Scene()
    scene.registries.buggy = True
    with capture_logs() as logs:
        await record_for(scene, 2.5)
    assert len(scene.registries.intervals) == 3
    assert [line["event"] for line in logs] == [
        "task failed, restarting it; please report this",
        "task failed, restarting it; please report this",
        "internal error while usage was recorded; please report this",
    ]
    assert scene.reports == [False, False, False, True]
    assert scene.sink.closed


async def test_request_traces_are_taken_once_a_second_in_longer_usage_intervals(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = Scene(interval_ms=10_000)
    await record_for(scene, 30.5)
    assert [time - EPOCH_MS for time, _length in scene.registries.intervals] == [0, 10_000, 20_000, 30_000]
    assert len(scene.registries.offsets) == 31
    assert len(scene.reports) == 32, "problems are logged as often, and at the end"
