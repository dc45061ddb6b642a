"""The recorder hands events to a process that writes, and drops bytes rather than wait."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.kafka.waiting import eventually
from tests.wire.frames import request
from weir.conformance.capture import CaptureError, CaptureWriter, Run, read
from weir.conformance.capture.recorder import Recorder
from weir.conformance.capture.shared_queue import SIZE_MIN
from weir.conformance.capture.writer import BLOCK_BYTES
from weir.conformance.events import Bytes, Closed, Dropped, Opened, Side
from weir.protocol.messages import SaslAuthenticateRequest

RAW = Run(1, redacted=False)


def stop(recorder: Recorder) -> None:
    os.kill(recorder.pid, signal.SIGSTOP)
    assert os.waitid(os.P_PID, recorder.pid, os.WSTOPPED | os.WNOWAIT) is not None


def go_on(recorder: Recorder) -> None:
    os.kill(recorder.pid, signal.SIGCONT)


def fill_disk(recorder: Recorder, size: int) -> None:
    """Let the file grow to `size` bytes only, as on a full disk: writing more fails with EFBIG."""
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (size, size))


def has_room(recorder: Recorder, count: int) -> bool:
    return recorder.has_room(count, recorder.now_ns())


def data_in(path: Path) -> bytes:
    return b"".join(event.data for event in read(path) if isinstance(event, Bytes))


def test_both_directions_are_recorded_with_times_and_ends(tmp_path: Path) -> None:
    times = iter(range(1, 100))
    recorder = Recorder(tmp_path / "c", RAW, clock_ns=lambda: next(times))
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


def test_bytes_dropped_at_the_end_are_recorded_with_the_end(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", RAW, queue_bytes_max=0)
    connection = recorder.open("c:1", "s:2")
    connection.sent(memoryview(bytes(5000)), by_client=False)
    connection.ended(by_client=False)
    recorder.close()
    _opened, dropped, closed = read(tmp_path / "c")
    assert isinstance(dropped, Dropped)
    assert (dropped.side, dropped.count) == (Side.SERVER, 5000)
    assert isinstance(closed, Closed)


def test_bytes_dropped_of_one_side_are_recorded_before_those_of_the_other(tmp_path: Path) -> None:
    """An answer to a request that was dropped has the gap before it."""
    recorder = Recorder(tmp_path / "c", RAW, queue_bytes_max=10_000)
    connection = recorder.open("c:1", "s:2")
    connection.sent(memoryview(bytes(50_000)), by_client=True)
    connection.sent(memoryview(b"answer"), by_client=False)
    recorder.close()
    _opened, dropped, answer = read(tmp_path / "c", lambda _text: None)
    assert isinstance(dropped, Dropped)
    assert (dropped.side, dropped.count) == (Side.CLIENT, 50_000)
    assert isinstance(answer, Bytes)
    assert (answer.side, answer.data) == (Side.SERVER, b"answer")


def test_a_capture_that_is_removed_while_it_is_written_is_told(tmp_path: Path) -> None:
    for replace in (False, True):
        recorder = Recorder(tmp_path / "c", RAW)
        recorder.open("c:1", "s:2").sent(memoryview(b"lost"), by_client=True)
        (tmp_path / "c").unlink()
        if replace:
            (tmp_path / "c").touch()
        recorder.close()
        assert "was removed or replaced" in recorder.error


def test_bytes_are_copied_before_the_buffer_is_used_again(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", RAW)
    buffer = bytearray(b"one")
    recorder.open("c:1", "s:2").sent(memoryview(buffer), by_client=True)
    buffer[:] = b"two"
    recorder.close()
    assert [event.data for event in read(tmp_path / "c") if isinstance(event, Bytes)] == [b"one"]


def test_no_credential_is_in_the_bytes_of_the_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", Run(1))
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
        recorder = Recorder(tmp_path / "c", RAW)
        recorder.open("c:1", "s:2")
        recorder.close()
    assert [event.connection for event in read(tmp_path / "c")] == [0, 1]


def test_a_slow_disk_drops_bytes_and_delays_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", RAW, queue_bytes_max=10_100)
    connection = recorder.open("c:1", "s:2")
    stop(recorder)
    for number in range(100):  # these calls return although nothing is written
        connection.sent(memoryview(bytes([number]) * 5000), by_client=True)
    assert recorder.dropped_bytes == 98 * 5000
    go_on(recorder)
    assert eventually(lambda: has_room(recorder, 5000))
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
    assert recorder.dropped_bytes == 98 * 5000


def test_bytes_around_the_end_of_the_queues_memory_stay_in_order(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", RAW, queue_bytes_max=SIZE_MIN)
    connection = recorder.open("c:1", "s:2")
    parts = [os.urandom(size) for size in (2700, 1333, 4000, 1, 4096, 512)]
    for part in parts:
        assert eventually(partial(has_room, recorder, len(part)))
        connection.sent(memoryview(part), by_client=True)
    recorder.close()
    assert data_in(tmp_path / "c") == b"".join(parts)


def test_connections_opened_and_closed_while_nothing_is_written_are_in_the_capture(tmp_path: Path) -> None:
    count = 20_000  # more messages than the pipe takes, and more data than the memory
    recorder = Recorder(tmp_path / "c", RAW, queue_bytes_max=SIZE_MIN)
    stop(recorder)
    for _ in range(count):
        connection = recorder.open("c:1", "s:2")
        connection.sent(memoryview(b"data"), by_client=True)
        connection.ended(by_client=True)
    go_on(recorder)
    recorder.close()
    events = list(read(tmp_path / "c"))
    assert [event.connection for event in events if isinstance(event, Opened)] == list(range(count))
    assert [event.connection for event in events if isinstance(event, Closed)] == list(range(count))
    kept = sum(len(event.data) for event in events if isinstance(event, Bytes))
    dropped = sum(event.count for event in events if isinstance(event, Dropped))
    assert kept + dropped == 4 * count
    assert recorder.dropped_bytes == dropped > 0


def test_a_full_disk_is_told_and_what_follows_counts_as_dropped(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", RAW)
    connection = recorder.open("c:1", "s:2")
    fill_disk(recorder, 2 * BLOCK_BYTES)
    for _ in range(4):
        connection.sent(memoryview(os.urandom(BLOCK_BYTES)), by_client=True)
    assert eventually(lambda: not has_room(recorder, 1))
    connection.sent(memoryview(b"more"), by_client=True)
    recorder.close()
    assert recorder.error == f"{tmp_path / 'c'}: cannot write it: File too large"
    assert recorder.dropped_bytes == 3 * BLOCK_BYTES + len(b"more")
    with CaptureWriter(tmp_path / "c", Run(2)) as after:  # the part of a block was removed
        after.write(Closed(7, 9, Side.CLIENT))
    first, data, last = read(tmp_path / "c")
    assert isinstance(first, Opened)
    assert isinstance(data, Bytes)
    assert len(data.data) == BLOCK_BYTES
    assert last == Closed(7, 9, Side.CLIENT)


def test_bytes_without_frames_behind_dropped_ones_count_as_dropped(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", Run(1), queue_bytes_max=SIZE_MIN)
    connection = recorder.open("c:1", "s:2")
    connection.sent(memoryview(bytes(5000)), by_client=True)  # the queue has no room
    assert eventually(lambda: has_room(recorder, 4000))
    connection.sent(memoryview(b"the rest of a frame"), by_client=True)
    recorder.close()
    in_file = sum(event.count for event in read(tmp_path / "c") if isinstance(event, Dropped))
    assert recorder.dropped_bytes == in_file == 5000 + len(b"the rest of a frame")


def test_signals_that_end_the_recorder_do_not_end_the_process_that_writes(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", RAW)
    assert os.getsid(recorder.pid) != os.getsid(0)
    connection = recorder.open("c:1", "s:2")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(recorder.pid, number)
    connection.sent(memoryview(b"after the signals"), by_client=True)
    recorder.close()
    assert recorder.error == ""
    assert data_in(tmp_path / "c") == b"after the signals"


def test_a_killed_process_that_writes_is_told_and_leaves_a_readable_capture(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", RAW)
    connection = recorder.open("c:1", "s:2")
    connection.sent(memoryview(bytes(BLOCK_BYTES)), by_client=True)
    assert eventually(lambda: len(list(read(tmp_path / "c", lambda _damage: None))) == 2)
    os.kill(recorder.pid, signal.SIGKILL)
    os.waitid(os.P_PID, recorder.pid, os.WEXITED | os.WNOWAIT)
    for _ in range(3):
        connection.sent(memoryview(b"lost"), by_client=True)
    connection.ended(by_client=True)
    recorder.close()
    assert recorder.error == f"{tmp_path / 'c'}: the process that writes it has ended"
    damage: list[str] = []
    assert len(list(read(tmp_path / "c", damage.append))) == 2
    assert damage == [f"{tmp_path / 'c'}: the capture was not closed, so events at its end may be missing"]
    CaptureWriter(tmp_path / "c", Run(2)).close()  # no lock is left


def test_a_process_that_is_killed_after_the_last_event_is_told(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c", RAW)
    recorder.open("c:1", "s:2").sent(memoryview(b"lost"), by_client=True)
    stop(recorder)
    os.kill(recorder.pid, signal.SIGKILL)
    recorder.close()
    assert recorder.error == f"{tmp_path / 'c'}: the process that writes it ended with status -9"
    assert recorder.dropped_bytes in {0, len(b"lost")}


def test_all_events_of_a_killed_recorder_are_written(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from weir.conformance.capture.blocks import Run;"
        "from weir.conformance.capture.recorder import Recorder;"
        "connection = Recorder(Path(sys.argv[1]), Run(1, redacted=False)).open('c:1', 's:2');"
        "[connection.sent(memoryview(bytes([n]) * 1000), by_client=True) for n in range(200)];"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "c")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert eventually(lambda: is_closed(tmp_path / "c"))
    assert data_in(tmp_path / "c") == b"".join(bytes([number]) * 1000 for number in range(200))


def is_closed(path: Path) -> bool:
    """True if no process writes the capture."""
    try:
        CaptureWriter(path, Run(2)).close()
    except CaptureError:
        return False
    return True


def test_a_capture_that_cannot_be_opened_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"something else")
    with pytest.raises(CaptureError, match="is not a capture of Weir"):
        Recorder(tmp_path / "c", RAW)
    with pytest.raises(CaptureError, match="cannot write it: No such file or directory"):
        Recorder(tmp_path / "none" / "c", RAW)
