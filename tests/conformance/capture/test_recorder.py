"""The recorder writes from its own thread, and drops bytes rather than wait."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.kafka.waiting import eventually
from tests.wire.frames import request
from weir.conformance.capture import CaptureWriter, Run, read
from weir.conformance.capture.recorder import EVENT_BYTES, Recorder
from weir.conformance.capture.redaction import Redaction
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side
from weir.protocol.messages import SaslAuthenticateRequest

CLOSED_S = 10.0


class SlowWriter(CaptureWriter):
    """A writer whose disk does not answer until it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Run(1))
        self.may_write = threading.Event()
        self.waits = threading.Event()

    def write(self, event: Event) -> None:
        self.waits.set()
        assert self.may_write.wait(CLOSED_S)
        super().write(event)


class BrokenWriter(CaptureWriter):
    """A writer whose disk is full from the second event on."""

    def write(self, event: Event) -> None:
        if self.events:
            raise OSError(28, "No space left on device")
        super().write(event)


def test_both_directions_are_recorded_with_times_and_ends(tmp_path: Path) -> None:
    times = iter(range(1, 100))
    recorder = Recorder(CaptureWriter(tmp_path / "c", Run(1)), None, clock_ns=lambda: next(times))
    first = recorder.open("10.0.0.1:5000", "kafka:9092", "broker 1")
    second = recorder.open("10.0.0.2:5000", "kafka:9092", "broker 1")
    first.sent(memoryview(b"ask"), by_client=True)
    second.sent(memoryview(b"else"), by_client=True)
    first.sent(memoryview(b"answer"), by_client=False)
    for _ in range(2):
        first.ended(by_client=True)
        first.ended(by_client=False)
    recorder.close()
    assert list(read(tmp_path / "c")) == [
        Opened(0, 1, "10.0.0.1:5000", "kafka:9092", "broker 1"),
        Opened(1, 2, "10.0.0.2:5000", "kafka:9092", "broker 1"),
        Bytes(0, 3, Side.CLIENT, b"ask"),
        Bytes(1, 4, Side.CLIENT, b"else"),
        Bytes(0, 5, Side.SERVER, b"answer"),
        Closed(0, 6, Side.CLIENT),
        Closed(0, 7, Side.SERVER),
    ]
    assert (recorder.connections, recorder.dropped_bytes) == (2, 0)
    assert recorder.seen_bytes == {Side.CLIENT: 7, Side.SERVER: 6}


def test_a_slow_disk_drops_bytes_and_delays_nothing(tmp_path: Path) -> None:
    writer = SlowWriter(tmp_path / "c")
    recorder = Recorder(writer, None, queue_bytes_max=10_000 + 3 * EVENT_BYTES)
    connection = recorder.open("c:1", "s:2")
    assert writer.waits.wait(CLOSED_S)
    for number in range(100):  # these calls return although nothing is written
        connection.sent(memoryview(bytes([number]) * 5000), by_client=True)
    assert writer.events == 0
    assert recorder.dropped_bytes == 98 * 5000
    writer.may_write.set()
    assert eventually(lambda: recorder.has_room(5000))
    connection.sent(memoryview(b"after"), by_client=True)
    recorder.close()
    first, second, dropped, last = list(read(tmp_path / "c"))[1:]
    assert isinstance(dropped, Dropped)
    assert (dropped.side, dropped.count) == (Side.CLIENT, 98 * 5000)
    assert [event.data for event in (first, second, last) if isinstance(event, Bytes)] == [
        b"\0" * 5000,
        b"\1" * 5000,
        b"after",
    ]


def test_bytes_dropped_at_the_end_are_recorded_with_the_end(tmp_path: Path) -> None:
    recorder = Recorder(CaptureWriter(tmp_path / "c", Run(1)), None, queue_bytes_max=0)
    connection = recorder.open("c:1", "s:2")
    connection.sent(memoryview(b"lost"), by_client=False)
    connection.ended(by_client=False)
    recorder.close()
    _opened, dropped, closed = read(tmp_path / "c")
    assert isinstance(dropped, Dropped)
    assert (dropped.side, dropped.count) == (Side.SERVER, 4)
    assert isinstance(closed, Closed)


def test_a_full_disk_is_told_and_what_follows_counts_as_dropped(tmp_path: Path) -> None:
    recorder = Recorder(BrokenWriter(tmp_path / "c", Run(1)), None)
    connection = recorder.open("c:1", "s:2")
    connection.sent(memoryview(b"first"), by_client=True)
    assert eventually(lambda: bool(recorder.error))
    connection.sent(memoryview(b"second"), by_client=True)
    recorder.close()
    assert recorder.error == f"{tmp_path / 'c'}: cannot write it: No space left on device"
    assert recorder.dropped_bytes >= len(b"second")


def test_bytes_are_copied_before_the_buffer_is_used_again(tmp_path: Path) -> None:
    recorder = Recorder(CaptureWriter(tmp_path / "c", Run(1)), None)
    buffer = bytearray(b"one")
    recorder.open("c:1", "s:2").sent(memoryview(buffer), by_client=True)
    buffer[:] = b"two"
    recorder.close()
    assert [event.data for event in read(tmp_path / "c") if isinstance(event, Bytes)] == [b"one"]


def test_no_credential_is_in_the_bytes_of_the_file(tmp_path: Path) -> None:
    recorder = Recorder(CaptureWriter(tmp_path / "c", Run(1)), Redaction())
    connection = recorder.open("c:1", "s:2")
    secret = b"hunter2"
    login = request(SaslAuthenticateRequest(auth_bytes=b"\0u\0" + secret), 2)
    connection.sent(memoryview(login), by_client=True)
    connection.sent(memoryview(login[:-3]), by_client=True)  # incomplete: it is held until the end
    recorder.close()
    data = b"".join(event.data for event in read(tmp_path / "c") if isinstance(event, Bytes))
    assert len(data) == 2 * len(login) - 3
    assert secret not in data
    assert secret not in (tmp_path / "c").read_bytes()


def test_a_second_recorder_continues_the_numbers_of_connections(tmp_path: Path) -> None:
    for _ in range(2):
        recorder = Recorder(CaptureWriter(tmp_path / "c", Run(1)), None)
        recorder.open("c:1", "s:2")
        recorder.close()
    assert [event.connection for event in read(tmp_path / "c")] == [0, 1]
