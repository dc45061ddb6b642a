"""Records connections into a capture without slowing them.

The thread that relays bytes only copies them to a queue in shared memory; another process redacts and writes
(`writing`). If that process is slower than the connections, the queue fills up: further bytes are dropped,
counted, and recorded as `Dropped`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from weir.conformance.capture.blocks import CaptureError, Run
from weir.conformance.capture.shared_queue import QueueSender
from weir.conformance.capture.writing import CaptureReport, WritingTask
from weir.conformance.events import Closed, Dropped, Opened, Side

QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Default of the maximum size (bytes) of the queue."""
LOOK_NS: Final = 250_000_000
"""Time (ns) after which the recorder reads the reports of the writing process even if the queue has room."""
LOOK_BYTES: Final = 1024 * 1024
"""Number of bytes after which the recorder does so."""
REPORTS_BYTES: Final = 64 * 1024
"""Size (bytes) of the pipe with the reports."""
CLOSE_PAUSE_S: Final = 0.005
"""Time (s) between two attempts to put the last events into a full queue."""


class Recorder:
    """Hands the events of connections to a process that writes them. Call its methods from one thread."""

    def __init__(
        self,
        path: Path,
        run: Run,
        *,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Start the process, which opens the capture and continues it if it exists. `run` says whether
        credentials and the payloads of records are replaced. Raises CaptureError.
        """
        self._path = path
        self._clock_ns = clock_ns
        self._waiting: deque[Opened | Closed | Dropped] = deque()
        """Events that the queue has not taken, besides bytes: these are dropped instead."""
        self._look_at_ns = self._unlooked_bytes = 0
        self._unqueued_bytes = 0
        self._report, self._part = CaptureReport(), b""
        self.connections = 0
        """Number of connections that were opened."""
        self.seen_bytes = {Side.CLIENT: 0, Side.SERVER: 0}
        """Number of bytes that each side sent, with those that were dropped."""
        self.error = ""
        """The error that ended writing, as one line; "" without an error. Bytes are dropped from then on."""
        try:
            self._queue = QueueSender(queue_bytes_max)
        except OSError as error:
            raise CaptureError(f"no memory for {queue_bytes_max} bytes of queue: {error.strerror}") from None
        try:
            self._process = _started(path, run, self._queue)
        finally:
            self._queue.close_receiver()
        assert self._process.stdout is not None
        self._reports = self._process.stdout
        first = self._reports.readline()
        self._take(first)
        if not first or self._report.error:
            self._end()
            raise CaptureError(self._report.error or f"{path}: the process that writes it did not start")
        os.set_blocking(self._reports.fileno(), False)
        self.repaired = self._report.repaired
        """One line about the damage of an existing capture, which was removed; "" without."""
        self._next_connection = self._report.next_connection

    @property
    def pid(self) -> int:
        """Number of the process that writes."""
        return self._process.pid

    @property
    def dropped_bytes(self) -> int:
        """Number of bytes that the capture lacks: the queue or the disk did not take them, or redaction found
        no frame in those behind. Recent ones may be missing before `close`.
        """
        if self.error:
            return sum(self.seen_bytes.values()) - self._report.data_bytes
        return self._unqueued_bytes + self._report.unreadable_bytes

    @property
    def filled_frames(self) -> int:
        """Number of frames that became filler behind their heads, because they could not be read."""
        return self._report.filled_frames

    def open(self, client: str, server: str, label: str = "") -> RecordedConnection:
        """Record a new connection, with the addresses of the client and the server."""
        number = self._next_connection
        self._next_connection += 1
        self.connections += 1
        self.put(Opened(number, self.now_ns(), client, server, label))
        return RecordedConnection(self, number)

    def close(self) -> None:
        """Wait until all events of the queue are written and the capture is closed. Errors are in `error`."""
        while self._waiting and not self._put_waiting() and not self.error:
            time.sleep(CLOSE_PAUSE_S)
            self._look()
        self._end()
        if self._process.returncode:
            self._fail(f"the process that writes it ended with status {self._process.returncode}")

    def now_ns(self) -> int:
        """Return the time (ns) since the epoch."""
        return self._clock_ns()

    def has_room(self, count: int, now_ns: int) -> bool:
        """Return True if the queue takes `count` more bytes at this time."""
        self._unlooked_bytes += count
        is_due = self._unlooked_bytes >= LOOK_BYTES or now_ns >= self._look_at_ns
        if is_due or self._waiting or not self._queue.has_room(count):
            self._look_at_ns, self._unlooked_bytes = now_ns + LOOK_NS, 0
            self._look()
            self._put_waiting()
        return not self.error and not self._waiting and self._queue.has_room(count)

    def put(self, event: Opened | Closed | Dropped) -> None:
        """Append an event to the queue, or later, if that has no room."""
        self._waiting.append(event)
        self._put_waiting()

    def put_bytes(self, connection: int, time_ns: int, side: Side, data: memoryview) -> bool:
        """Append bytes to the queue; return False if that has no room."""
        try:
            return not self._waiting and self._queue.put_bytes(connection, time_ns, side, data)
        except BrokenPipeError:
            self._lose_process()
            return False

    def drop(self, count: int) -> None:
        """Count bytes for which the queue has no room."""
        self._unqueued_bytes += count

    def _put_waiting(self) -> bool:
        """Move events to the queue, in order; return True if none waits."""
        if self.error:
            self._waiting.clear()
        try:
            while self._waiting and self._queue.put(self._waiting[0]):
                self._waiting.popleft()
        except BrokenPipeError:
            self._lose_process()
        return not self._waiting

    def _look(self) -> None:
        """Read the reports that are there."""
        data = self._reports.read(REPORTS_BYTES)
        if data:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Take the last whole report."""
        whole, _, self._part = (self._part + data).rpartition(b"\n")
        if whole:
            self._report = msgspec.json.decode(whole.rpartition(b"\n")[2], type=CaptureReport)
            self._queue.release(max(self._report.released, self._queue.released))
            self.error = self.error or self._report.error

    def _end(self) -> None:
        """Close the queue, and read the reports up to the last."""
        self._queue.close()
        os.set_blocking(self._reports.fileno(), True)
        while data := self._reports.read(REPORTS_BYTES):
            self._take(data)
        self._reports.close()
        self._process.wait()

    def _lose_process(self) -> None:
        self._look()
        self._fail("the process that writes it has ended")

    def _fail(self, problem: str) -> None:
        """Keep the first error."""
        self.error = self.error or f"{self._path}: {problem}"


class RecordedConnection:
    """One connection of a recorder. Its methods return at once."""

    def __init__(self, recorder: Recorder, number: int) -> None:
        self._recorder = recorder
        self._number = number
        self._dropped = {Side.CLIENT: 0, Side.SERVER: 0}
        """Number of bytes that were dropped since the latest event of this side."""
        self._open = {Side.CLIENT, Side.SERVER}

    def sent(self, data: memoryview, *, by_client: bool) -> None:
        """Record bytes that the client, or the server, has sent. The bytes are copied."""
        recorder, side, count = self._recorder, Side.CLIENT if by_client else Side.SERVER, len(data)
        now_ns = recorder.now_ns()
        recorder.seen_bytes[side] += count
        if recorder.has_room(count, now_ns):
            self._note_dropped(now_ns)
            if recorder.put_bytes(self._number, now_ns, side, data):
                return
        recorder.drop(count)
        self._dropped[side] += count

    def ended(self, *, by_client: bool) -> None:
        """Record that the client, or the server, sends no more; later calls for the same side do nothing."""
        side = Side.CLIENT if by_client else Side.SERVER
        if side in self._open:
            self._open.remove(side)
            now_ns = self._recorder.now_ns()
            self._note_dropped(now_ns)
            self._recorder.put(Closed(self._number, now_ns, side))

    def _note_dropped(self, now_ns: int) -> None:
        """Record the missing bytes of both sides: bytes that follow may answer them."""
        for side, dropped in self._dropped.items():
            if dropped:
                self._dropped[side] = 0
                self._recorder.put(Dropped(self._number, now_ns, side, dropped))


def _started(path: Path, run: Run, queue: QueueSender) -> subprocess.Popen[bytes]:
    """Start the process that writes, in a session of its own: signals of the terminal do not reach it."""
    task = WritingTask(run, queue.memory, queue.size)
    return subprocess.Popen(  # noqa: S603  # the path is no option: the process takes it as it comes
        [sys.executable, "-m", "weir.conformance.capture.writing", path, msgspec.json.encode(task)],
        bufsize=0,
        stdin=queue.messages,
        stdout=subprocess.PIPE,
        pass_fds=[queue.memory],
        start_new_session=True,
    )
