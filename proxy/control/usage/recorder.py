"""Read usage records from the registries once per interval, and traces once a second, in a Trio task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import structlog
import trio

from weir.proxy.control.slices import slices
from weir.proxy.control.supervisor import Supervisor, Task, Works
from weir.proxy.control.usage.outlet import Record
from weir.proxy.control.usage.tally import Kind, Loss, Tally
from weir.usage import TraceRecord, UsageRecord

log = structlog.get_logger("weir.usage")

SLACK_SHARE: Final = 20
"""Divisor that gives the tolerance for the end of an interval. An interval that ends within a 20th of its
length from a multiple of this length counts as ending at the multiple, because records at round times are
more useful.
"""
SLACK_MS_MAX: Final = 100
SLICE: Final = 250
"""Number of records read in one step, which takes about a millisecond; then sockets are served."""
TRACES_S: Final = 1.0
"""Time (s) between two reads of the traces, so that few of them wait in memory."""
CLOSE_S: Final = 5.0
"""Maximum time (s) that Weir takes to write the waiting records when it stops."""


class Interval(NamedTuple):
    """Period of time whose usage is in one record."""

    time_ms: int
    """Beginning of the interval, in Unix time (ms)."""
    length_ms: int
    """Length of the interval (ms), at least 1."""


class Intervals:
    """Consecutive periods of time, each covered by one set of usage records. They have no gaps unless the
    wall clock is set.

    Intervals end at multiples of their length on the wall clock, so that the records of all Weirs align. A
    monotonic clock measures their length. The two clocks are compared at each end: if the wall clock is set,
    forwards or back, the times of the next records move, and their lengths stay right.
    """

    def __init__(self, length_ms: int, wall_ms: int, mono_ms: int) -> None:
        """Begin the first interval now, at Unix time `wall_ms` and monotonic time `mono_ms`."""
        self._length_ms = length_ms
        self._slack_ms = min(max(length_ms // SLACK_SHARE, 1), SLACK_MS_MAX)
        self._begin_ms = wall_ms
        self._begin_mono_ms = mono_ms
        self.stepped_ms = 0
        """Time (ms) by which the wall clock was set during the last interval, positive if forwards."""

    def wait_ms(self, wall_ms: int) -> int:
        """Return the time (ms) until the present interval should end."""
        end_ms = (self._begin_ms // self._length_ms + 1) * self._length_ms
        return min(max(end_ms - wall_ms, 0), self._length_ms + self._slack_ms)

    def next(self, wall_ms: int, mono_ms: int, *, last: bool = False) -> Interval:
        """End the present interval and return it; begin the next one. An end close to a multiple of the
        interval's length is moved to the multiple, except with `last`.
        """
        passed_ms = max(mono_ms - self._begin_mono_ms, 1)
        begin_ms = self._begin_ms
        self.stepped_ms = wall_ms - passed_ms - begin_ms
        if abs(self.stepped_ms) > self._slack_ms:
            begin_ms = wall_ms - passed_ms
        else:
            self.stepped_ms = 0
        end_ms = max(wall_ms if last else self._aligned(wall_ms, begin_ms), begin_ms + 1)
        self._begin_ms = end_ms
        self._begin_mono_ms = mono_ms - (wall_ms - end_ms)
        return Interval(begin_ms, end_ms - begin_ms)

    def _aligned(self, wall_ms: int, begin_ms: int) -> int:
        """Return the end of the interval (Unix ms): the nearest multiple of the interval's length if that is
        close to now, else the present time.
        """
        nearest_ms = (wall_ms + self._length_ms // 2) // self._length_ms * self._length_ms
        met = abs(wall_ms - nearest_ms) <= self._slack_ms and nearest_ms > begin_ms
        return nearest_ms if met else wall_ms


class Registries(Protocol):
    """The methods of `proxy.connection.usage_registries.UsageRegistries` that the recorder uses."""

    @property
    def traces_dropped(self) -> int:
        """Number of traced requests that were dropped, because the registries keep a maximum number between
        two calls of `take_traces`.
        """

    def drain(self, time_ms: int, interval_ms: int, instance: str) -> Iterator[UsageRecord]:
        """Yield records of the usage since the last call of `drain`."""

    def take_traces(self, offset_ms: int, instance: str) -> Iterator[TraceRecord]:
        """Yield the requests whose traces have become complete since the last call."""


class Sink(Protocol):
    """Interface that the recorder passes records to; the sink never makes the recorder wait. `Writer`
    implements it.
    """

    @property
    def tally(self) -> Tally:
        """Counts of the records written, waiting and dropped."""

    def start(self) -> None:
        """Start the thread that writes the records."""

    def put(self, kind: Kind, records: Sequence[Record]) -> None:
        """Take records for writing. Drop and count the records for which the queue has no room."""

    def close(self, timeout_s: float) -> None:
        """Write the waiting records; block for at most `timeout_s`."""


class ReportWriting(Protocol):
    """Function that logs problems with the writing of usage records."""

    def __call__(self, *, last: bool = False) -> None:
        """Log the problems that have occurred since the last call. `last` is True in the last call before the
        process ends.
        """


class Clocks(NamedTuple):
    """The wall clock and the connections' monotonic clock, both in ms."""

    wall_ms: Callable[[], int]
    """Function that returns the Unix time (ms)."""
    session_ms: Callable[[], int]
    """Function that returns the monotonic time (ms) of the clock that connections use."""


class UsageRecorder:
    """Reads usage from the registries at the end of each interval, and passes it as records to a sink. There
    is one per process.
    """

    def __init__(
        self,
        registries: Registries,
        sink: Sink,
        instance: str,
        interval_ms: int,
        clocks: Clocks,
        report: ReportWriting,
        supervisor: Supervisor,
    ) -> None:
        """Begin the first interval now."""
        self._registries = registries
        self._sink = sink
        self._instance = instance
        self._clocks = clocks
        self._report = report
        self._supervisor = supervisor
        wall_ms, session_ms = clocks.wall_ms(), clocks.session_ms()
        self._intervals = Intervals(interval_ms, wall_ms, session_ms)
        self._offset_ms = wall_ms - session_ms
        self._traces_dropped = 0
        self._setbacks = 0
        """Number of times that the wall clock was set back. It is part of the name in records, so that no two
        records have the same key.
        """

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Record usage until cancelled; then record the last, shorter interval, and close the sink."""
        self._sink.start()
        task_status.started()
        try:
            await self._supervisor.keep_running(Task.USAGE, self._record_forever)
        finally:
            with trio.CancelScope(shield=True):
                await self._end()

    async def _record_forever(self, works: Works) -> None:
        while True:
            await self._wait()
            with trio.CancelScope(shield=True):  # records of a partial drain would be lost
                await self._record(last=False)
            works()

    async def _wait(self) -> None:
        """Wait until the present interval should end. Meanwhile pass on traces, and log problems."""
        end_s = trio.current_time() + self._intervals.wait_ms(self._clocks.wall_ms()) / 1000
        while (now_s := trio.current_time()) + TRACES_S < end_s:
            await trio.sleep_until(now_s + TRACES_S)
            with trio.CancelScope(shield=True):
                await self._take_traces()
            self._report()
        await trio.sleep_until(end_s)

    async def _end(self) -> None:
        try:
            await self._record(last=True)
        except Exception:  # a bug must not keep Weir from stopping
            log.exception("internal error while usage was recorded; please report this")
        await trio.to_thread.run_sync(self._sink.close, CLOSE_S)
        self._report(last=True)

    async def _record(self, *, last: bool) -> None:
        wall_ms, session_ms = self._clocks.wall_ms(), self._clocks.session_ms()
        interval = self._intervals.next(wall_ms, session_ms, last=last)
        if self._intervals.stepped_ms < 0:  # or records would have the times of earlier ones
            self._setbacks += 1
        if self._intervals.stepped_ms:
            self._offset_ms = wall_ms - session_ms
            log.warning("the clock was set", stepped_ms=self._intervals.stepped_ms)
        try:
            await self._take(interval)
        finally:
            self._report()

    async def _take(self, interval: Interval) -> None:
        used = self._registries.drain(interval.time_ms, interval.length_ms, self._name)
        await self._put(Kind.USAGE, iter(used))
        await self._take_traces()

    @property
    def _name(self) -> str:
        """Name of the process in records."""
        return f"{self._instance}-{self._setbacks}" if self._setbacks else self._instance

    async def _take_traces(self) -> None:
        traces = self._registries.take_traces(self._offset_ms, self._name)
        await self._put(Kind.TRACE, iter(traces))
        dropped = self._registries.traces_dropped
        if dropped > self._traces_dropped:
            self._sink.tally.note_dropped(Loss.TRACES_MAX, dropped - self._traces_dropped)
            self._traces_dropped = dropped

    async def _put(self, kind: Kind, records: Iterator[Record]) -> None:
        """Pass the records to the sink in steps; sockets are served between the steps."""
        for some in slices(records, SLICE):
            self._sink.put(kind, some)
            await trio.lowlevel.checkpoint()
