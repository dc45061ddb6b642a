"""Usage records of workers: each worker counts the usage of its clients, the supervisor writes the records.

At the end of each interval, the supervisor asks all workers for their records of this interval. Each worker
that a client has used has a record of it. A worker that drains sends the rest unasked; it belongs to the
interval that has not ended yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
import trio

from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.control.slices import slices
from weir.proxy.control.supervisor import Works
from weir.proxy.control.usage.outlet import Record
from weir.proxy.control.usage.recorder import SLICE
from weir.proxy.control.usage.tally import Kind
from weir.proxy.workers.messages import Message, TakeTraces, TakeUsage, UsageRecords
from weir.usage import TraceRecord, UsageRecord

Put: TypeAlias = Callable[[Kind, Sequence[Record]], None]
"""Function (kind, records) that takes records for writing."""
_REST: Final = TakeUsage(0, 0, ""), TakeTraces(0, "")
"""Requests of a draining worker to itself: for records without times and instance."""
_Wanted: TypeAlias = TakeUsage | TakeTraces


class UsageSender:
    """The worker's side: sends the records that the supervisor requests."""

    def __init__(self, registries: UsageRegistries, post: Callable[[Message], None]) -> None:
        """Begin without requests. `post` sends a message to the supervisor."""
        self._registries = registries
        self._post = post
        self._wanted, self._requests = trio.open_memory_channel[_Wanted](math.inf)
        self._traces_dropped = 0
        self._finished = trio.Event()

    def take(self, wanted: _Wanted) -> None:
        """Send these records soon, after those of earlier requests."""
        self._wanted.send_nowait(wanted)

    async def run(self, works: Works) -> None:
        """Send the requested records, until `finish`; let other tasks run between the messages."""
        async for wanted in self._requests:
            for message in self._messages(wanted):
                self._post(message)
                await trio.lowlevel.checkpoint()
            works()
        self._finished.set()

    async def finish(self) -> None:
        """Send all records that are left, and wait until they are posted."""
        for wanted in _REST:
            self.take(wanted)
        self._wanted.close()
        await self._finished.wait()

    def _messages(self, wanted: _Wanted) -> Iterator[UsageRecords]:
        rest = wanted in _REST
        if isinstance(wanted, TakeUsage):
            used = self._registries.drain(wanted.time_ms, wanted.interval_ms, wanted.instance)
            for usage in slices(used, SLICE):
                yield UsageRecords(usage, [], rest=rest)
            return
        for traces in slices(self._registries.take_traces(wanted.offset_ms, wanted.instance), SLICE):
            yield UsageRecords([], traces, rest=rest)
        dropped = self._registries.traces_dropped
        if dropped > self._traces_dropped:
            yield UsageRecords([], [], dropped - self._traces_dropped, rest=rest)
            self._traces_dropped = dropped


class UsageCollector:
    """The supervisor's side, in place of usage registries of its own: asks the workers, and passes their
    records on.
    """

    def __init__(self, send: Callable[[Message], None], put: Put) -> None:
        """Begin without records. `send` sends a message to all workers; `put` takes records for writing."""
        self.traces_dropped = 0
        """Number of request traces that workers have dropped."""
        self._send = send
        self._put = put
        self._usage: list[UsageRecord] = []
        """Usage of drained workers, of the interval that has not ended yet."""
        self._traces: list[TraceRecord] = []
        """Traces of drained workers; their times are those of the reactor's clock."""

    def drain(self, time_ms: int, interval_ms: int, instance: str) -> Iterator[UsageRecord]:
        """Ask the workers for the usage of this interval, which ends now; yield that of drained workers."""
        self._send(TakeUsage(time_ms, interval_ms, instance))
        rest, self._usage = self._usage, []
        for record in rest:
            yield msgspec.structs.replace(record, time_ms=time_ms, interval_ms=interval_ms, instance=instance)

    def take_traces(self, offset_ms: int, instance: str) -> Iterator[TraceRecord]:
        """Ask the workers for the traces that are complete; yield those of drained workers. `offset_ms` turns
        times of the reactor's clock into ms since 1970.
        """
        self._send(TakeTraces(offset_ms, instance))
        rest, self._traces = self._traces, []
        for trace in rest:
            yield msgspec.structs.replace(
                trace,
                time_ms=trace.time_ms + offset_ms,
                answered_ms=trace.answered_ms + offset_ms if trace.answered_ms else 0,
                instance=instance,
            )

    def take(self, used: UsageRecords) -> None:
        self.traces_dropped += used.traces_dropped
        if used.rest:
            self._usage += used.usage
            self._traces += used.traces
            return
        if used.usage:
            self._put(Kind.USAGE, used.usage)
        if used.traces:
            self._put(Kind.TRACE, used.traces)
