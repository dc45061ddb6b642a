"""Usage records between a worker and the supervisor, without processes."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from tests.proxy.supervised import supervisor
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.control.supervisor import Task
from weir.proxy.control.usage.outlet import Record
from weir.proxy.control.usage.tally import Kind
from weir.proxy.workers.link import Link
from weir.proxy.workers.messages import Message, TakeTraces, TakeUsage, UsageRecords
from weir.proxy.workers.usage import UsageCollector, UsageSender
from weir.usage import TraceRecord, UsageRecord

pytestmark = pytest.mark.trio

BEGIN_MS = 1_763_775_570_000
OFFSET_MS = 1_763_775_000_000


class Exchange:
    """A worker's registries, and what the supervisor is given for writing, across a real link."""

    def __init__(self, *, traces_max: int = 100) -> None:
        self.registries = UsageRegistries(trace_share=1.0, traces_max=traces_max)
        self.registries.number_from(500)
        self.put: list[tuple[Kind, Record]] = []
        self.collector = UsageCollector(self._tell, self._put)
        self._asked: list[Message] = []

    def _tell(self, message: Message) -> None:
        self._asked.append(message)

    def _put(self, kind: Kind, records: Sequence[Record]) -> None:
        self.put += [(kind, record) for record in records]

    def use(self, client_id: str, *, answered: bool = True) -> None:
        connection = self.registries.of(1)
        connection.become("alice", client_id)
        counters = connection.usage_counters(0, 0, 9, bytes(20))
        counters.arrived(100, 0, 7)
        if answered:
            connection.answering(counters)
            counters.answered(10, 0, 8)
        connection.end()

    async def work(self, *, drained: bool = False) -> None:
        """Have the worker obey what the supervisor has asked, and at last send the rest if it has drained."""
        ours, theirs = map(Link, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        sender = UsageSender(self.registries, ours.post)
        for message in self._asked:
            assert isinstance(message, TakeUsage | TakeTraces)
            sender.take(message)
        self._asked.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send_forever)
            nursery.start_soon(self._receive, theirs)
            nursery.start_soon(supervisor().keep_running, Task.WORKERS, sender.run)
            await (sender.finish() if drained else trio.testing.wait_all_tasks_blocked())
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        ours.close()
        theirs.close()

    async def _receive(self, link: Link) -> None:
        while True:
            message, _sock = await link.receive()
            assert isinstance(message, UsageRecords)
            self.collector.take(message)

    def usage(self) -> list[UsageRecord]:
        return [record for _kind, record in self.put if isinstance(record, UsageRecord)]


async def test_usage_of_a_worker_is_written_with_the_interval_that_the_supervisor_ends() -> None:
    exchange = Exchange()
    exchange.use("app")
    assert list(exchange.collector.drain(BEGIN_MS, 1000, "weir-1")) == []
    await exchange.work()
    ((kind, record),) = exchange.put
    assert kind == Kind.USAGE
    assert isinstance(record, UsageRecord)
    assert (record.time_ms, record.interval_ms, record.instance) == (BEGIN_MS, 1000, "weir-1")
    assert (record.broker, record.client_id, record.requests, record.bytes_in) == (1, "app", 1, 100)


async def test_traces_of_a_worker_have_the_supervisors_time_and_the_workers_connection_number() -> None:
    exchange = Exchange()
    exchange.use("app")
    assert list(exchange.collector.take_traces(OFFSET_MS, "weir-1")) == []
    await exchange.work()
    ((kind, trace),) = exchange.put
    assert kind == Kind.TRACE
    assert isinstance(trace, TraceRecord)
    assert (trace.time_ms, trace.answered_ms) == (OFFSET_MS + 7, OFFSET_MS + 8)
    assert (trace.instance, trace.connection) == ("weir-1", 501)


async def test_usage_that_a_drained_worker_has_left_belongs_to_the_interval_that_ends_next() -> None:
    exchange = Exchange()
    exchange.use("before")
    list(exchange.collector.drain(BEGIN_MS, 1000, "weir-1"))
    exchange.use("after", answered=False)
    await exchange.work(drained=True)
    assert [record.client_id for record in exchange.usage()] == ["before", "after"]


async def test_the_rest_of_a_drained_worker_gets_its_times_from_the_supervisor() -> None:
    exchange = Exchange()
    exchange.use("app")
    exchange.use("fire-and-forget", answered=False)
    await exchange.work(drained=True)
    assert exchange.put == []
    records = list(exchange.collector.drain(BEGIN_MS, 700, "weir-1"))
    assert {(r.client_id, r.time_ms, r.interval_ms, r.instance) for r in records} == {
        ("app", BEGIN_MS, 700, "weir-1"),
        ("fire-and-forget", BEGIN_MS, 700, "weir-1"),
    }
    traces = list(exchange.collector.take_traces(OFFSET_MS, "weir-1"))
    assert {(t.client_id, t.time_ms, t.answered_ms, t.instance) for t in traces} == {
        ("app", OFFSET_MS + 7, OFFSET_MS + 8, "weir-1")
    }
    assert list(exchange.collector.drain(BEGIN_MS + 700, 700, "weir-1")) == []


async def test_traces_that_a_worker_has_dropped_are_counted_once() -> None:
    exchange = Exchange(traces_max=1)
    for _ in range(3):
        exchange.use("app")
    for _ in range(2):
        list(exchange.collector.take_traces(OFFSET_MS, "weir-1"))
    await exchange.work()
    assert exchange.collector.traces_dropped == 2


async def test_usage_of_a_name_that_utf_8_cannot_encode_reaches_the_supervisor() -> None:
    exchange = Exchange()
    exchange.use("half \ud800")
    list(exchange.collector.drain(BEGIN_MS, 1000, "weir-1"))
    await exchange.work()
    assert [record.client_id for record in exchange.usage()] == ["half \ud800"]
