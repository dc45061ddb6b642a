"""The writer: records in order, a bounded queue that drops and counts, and an end within its time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from tests.proxy.usage_rigs import trace_record, usage_record
from weir.proxy.control.usage.outlet import OutletError, Record
from weir.proxy.control.usage.tally import Kind, Loss, Tally
from weir.proxy.control.usage.writer import CHUNK, RETRY_S, TEND_S, Writer
from weir.usage import UsageRecord

PATIENCE_S = 20.0


@dataclass
class FakeOutlet:
    tally: Tally
    name: str = "nowhere"
    got: list[Record] = field(default_factory=list)
    most: int = 1_000_000
    """Records taken by one write."""
    broken: bool = False
    buggy: bool = False
    opened: int = 0
    tended: int = 0
    closed: list[float] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """A write waits for it, as for a slow disk."""
    writing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def open(self) -> None:
        if self.broken:
            raise OutletError("cannot open: broken")
        self.opened += 1

    def write(self, kind: Kind, records: Sequence[Record]) -> int:
        self.writing.set()
        assert self.gate.wait(PATIENCE_S)
        if self.broken:
            raise OutletError("cannot write: broken")
        if self.buggy:
            raise ZeroDivisionError
        taken = records[: self.most]
        self.got += taken
        self.tally.note_written(kind, len(taken), 10 * len(taken), 1.0)
        return len(taken)

    def tend(self) -> None:
        self.tended += 1

    def close(self, timeout_s: float) -> None:
        self.closed.append(timeout_s)


def pair(queue_records: int = 1000) -> tuple[Writer, FakeOutlet]:
    outlet = FakeOutlet(Tally())
    return Writer(outlet, outlet.tally, queue_records, lambda: 0.0), outlet


def numbered(*numbers: int) -> list[UsageRecord]:
    return [usage_record(number) for number in numbers]


def numbers(outlet: FakeOutlet) -> list[int]:
    return [record.requests for record in outlet.got if isinstance(record, UsageRecord)]


def test_usage_records_are_written_in_chunks_in_order() -> None:
    writer, outlet = pair()
    writer.put(Kind.USAGE, numbered(*range(CHUNK + 5)))
    writer.put(Kind.TRACE, [trace_record()])
    assert writer.turn() == 0
    assert (numbers(outlet), outlet.tally.queued) == (list(range(CHUNK)), 6)
    assert [writer.turn(), writer.turn()] == [0, 0]
    assert (numbers(outlet), outlet.got[-1]) == (list(range(CHUNK + 5)), trace_record())
    assert writer.turn() == TEND_S
    assert (outlet.tally.queued, outlet.opened) == (0, 1)
    assert outlet.tally.written == {Kind.USAGE: CHUNK + 5, Kind.TRACE: 1, Kind.EVENT: 0}


def test_usage_records_beyond_the_queue_are_dropped_and_counted() -> None:
    writer, outlet = pair(queue_records=5)
    writer.put(Kind.USAGE, numbered(1, 2, 3))
    writer.put(Kind.USAGE, numbered(4, 5, 6, 7))
    writer.put(Kind.USAGE, numbered(8))
    assert outlet.tally.queued == 5
    assert outlet.tally.dropped[Loss.QUEUE_FULL] == 3
    while writer.turn() == 0:
        pass
    assert numbers(outlet) == [1, 2, 3, 4, 5]
    writer.put(Kind.USAGE, numbered(9))
    writer.turn()
    assert numbers(outlet)[-1] == 9


def test_unacknowledged_usage_records_take_room_in_the_queue() -> None:
    writer, outlet = pair(queue_records=5)
    outlet.tally.unacknowledged = 4
    writer.put(Kind.USAGE, numbered(1, 2))
    assert (outlet.tally.queued, outlet.tally.dropped[Loss.QUEUE_FULL]) == (1, 1)


def test_a_failing_usage_outlet_is_reopened_without_losing_queued_records() -> None:
    writer, outlet = pair(queue_records=3)
    writer.put(Kind.USAGE, numbered(1, 2))
    outlet.broken = True
    assert writer.turn() == RETRY_S
    assert outlet.tally.failure == "cannot open: broken"
    writer.put(Kind.USAGE, numbered(3, 4))
    outlet.broken = False
    assert [writer.turn(), writer.turn()] == [0, 0]
    assert (numbers(outlet), outlet.opened) == ([1, 2, 3], 1)
    assert (outlet.tally.failure, outlet.tally.dropped[Loss.QUEUE_FULL]) == ("", 1)
    outlet.broken = True
    writer.put(Kind.USAGE, numbered(5))
    assert writer.turn() == RETRY_S
    assert outlet.tally.failure == "cannot write: broken"
    outlet.broken = False
    writer.turn()
    assert (numbers(outlet)[-1], outlet.opened) == (5, 2)


def test_a_bug_in_a_usage_outlet_drops_the_current_records_and_is_logged() -> None:
    writer, outlet = pair()
    outlet.buggy = True
    writer.put(Kind.USAGE, numbered(1, 2))
    writer.put(Kind.USAGE, numbered(3))
    with capture_logs() as logs:
        assert writer.turn() == RETRY_S
    assert logs[0]["event"].startswith("internal error while records were written")
    outlet.buggy = False
    writer.turn()
    assert (numbers(outlet), outlet.tally.dropped[Loss.INTERNAL_ERROR]) == ([3], 2)
    assert outlet.tally.queued == 0


def test_the_usage_writer_thread_writes_all_records_by_its_end() -> None:
    writer, outlet = pair()
    writer.start()
    writer.put(Kind.USAGE, numbered(1))
    assert outlet.writing.wait(PATIENCE_S)
    for number in range(2, 500):
        writer.put(Kind.USAGE, numbered(number))
    writer.close(PATIENCE_S)
    assert numbers(outlet) == list(range(1, 500))
    assert outlet.closed == [PATIENCE_S]
    writer.put(Kind.USAGE, numbered(500))
    assert outlet.tally.dropped == {**dict.fromkeys(Loss, 0), Loss.QUEUE_FULL: 1}


def test_queueing_usage_records_never_waits_for_a_write() -> None:
    """If it did, this would not end: the write waits for the gate, which is opened after all are put."""
    writer, outlet = pair(queue_records=150)
    outlet.gate.clear()
    writer.start()
    writer.put(Kind.USAGE, numbered(0))
    assert outlet.writing.wait(PATIENCE_S)
    for number in range(1, 1000):
        writer.put(Kind.USAGE, numbered(number))
    assert (outlet.tally.queued, outlet.tally.dropped[Loss.QUEUE_FULL]) == (150, 850)
    outlet.gate.set()
    writer.close(PATIENCE_S)
    assert numbers(outlet) == list(range(150))


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_closing_the_usage_writer_does_not_wait_for_a_hanging_write() -> None:
    writer, outlet = pair()
    outlet.gate.clear()
    writer.start()
    writer.put(Kind.USAGE, numbered(1, 2, 3))
    assert outlet.writing.wait(PATIENCE_S)
    writer.close(0.01)
    assert (outlet.tally.dropped[Loss.SHUTDOWN], outlet.tally.queued) == (3, 0)
    outlet.gate.set()  # too late, and no harm
    writer._thread.join(PATIENCE_S)
    assert not writer._thread.is_alive()
    assert outlet.tally.queued == 0
