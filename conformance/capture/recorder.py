"""Records connections into a capture without slowing them.

Threads that relay bytes only append to a queue; a thread of the recorder redacts and writes. If the disk is
slower than the connections, the queue fills up: further bytes are dropped, counted, and recorded as
`Dropped`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from weir.conformance.capture.redaction import Redaction
from weir.conformance.capture.writer import CaptureWriter
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side

QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Default of the maximum size (bytes) of the queue."""
EVENT_BYTES: Final = 200
"""Memory (bytes) of an event without its data, about."""
FLUSH_S: Final = 1.0
"""Time (s) after which events are written even if their block is not full."""


class Recorder:
    """Writes the events of connections to a capture, from a thread of its own."""

    def __init__(
        self,
        writer: CaptureWriter,
        redaction: Redaction | None,
        *,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Start the thread. `redaction`: None to record all bytes as they are. The recorder owns the writer
        and closes it.
        """
        self._writer = writer
        self._redaction = redaction
        self._queue_bytes_max = queue_bytes_max
        self._clock_ns = clock_ns
        self._next_connection = writer.next_connection
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        # Each of these two is written by one thread, so that no lock is needed.
        self._put_bytes = self._taken_bytes = 0
        self.connections = 0
        """Number of connections that were opened."""
        self.seen_bytes = {Side.CLIENT: 0, Side.SERVER: 0}
        """Number of bytes that each side sent, with those that were dropped."""
        self.dropped_bytes = 0
        """Number of bytes that the capture lacks."""
        self.error = ""
        """The error that ended writing, as one line; "" without an error. Bytes are dropped from then on."""
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def open(self, client: str, server: str, label: str = "") -> RecordedConnection:
        """Record a new connection, with the addresses of the client and the server."""
        number = self._next_connection
        self._next_connection += 1
        self.connections += 1
        self.put(Opened(number, self._clock_ns(), client, server, label))
        return RecordedConnection(self, number)

    def close(self) -> None:
        """Write all events of the queue, and close the capture. Errors are in `error`."""
        self._queue.put(None)
        self._thread.join()

    @property
    def filled_frames(self) -> int:
        """Number of frames that became filler behind their heads, because they could not be read."""
        return self._redaction.filled if self._redaction is not None else 0

    def now_ns(self) -> int:
        """Return the time (ns) since the epoch."""
        return self._clock_ns()

    def has_room(self, count: int) -> bool:
        """Return True if the queue takes `count` more bytes."""
        waiting = self._put_bytes - self._taken_bytes
        return not self.error and waiting + count + EVENT_BYTES <= self._queue_bytes_max

    def put(self, event: Event) -> None:
        """Append an event to the queue."""
        self._put_bytes += _size(event)
        self._queue.put(event)

    # The thread

    def _run(self) -> None:
        try:
            self._write_all()
        except OSError as error:
            self.error = f"{self._writer.path}: cannot write it: {error.strerror or error}"
            self._discard()
        finally:
            try:
                self._writer.close()
            except OSError as error:
                self.error = self.error or f"{self._writer.path}: cannot write it: {error.strerror or error}"

    def _write_all(self) -> None:
        flush_at = time.monotonic() + FLUSH_S
        while True:
            try:
                event = self._queue.get(timeout=max(0.0, flush_at - time.monotonic()))
                if event is None:
                    break
                self._write(event)
                self._taken_bytes += _size(event)
            except queue.Empty:
                pass
            if time.monotonic() >= flush_at:
                self._writer.flush()
                flush_at = time.monotonic() + FLUSH_S
        if self._redaction is not None:
            for event in self._redaction.finish(self._clock_ns()):
                self._writer.write(event)

    def _write(self, event: Event) -> None:
        if self._redaction is None:
            self._writer.write(event)
            return
        for redacted in self._redaction.feed(event):
            self._writer.write(redacted)

    def _discard(self) -> None:
        """Empty the queue until the recorder is closed."""
        while (event := self._queue.get()) is not None:
            if isinstance(event, Bytes):
                self.dropped_bytes += len(event.data)


class RecordedConnection:
    """One connection of a recorder. Its methods return at once; call them from one thread."""

    def __init__(self, recorder: Recorder, number: int) -> None:
        self._recorder = recorder
        self._number = number
        self._dropped = {Side.CLIENT: 0, Side.SERVER: 0}
        """Number of bytes that were dropped since the latest event of this side."""
        self._open = {Side.CLIENT, Side.SERVER}

    def sent(self, data: memoryview, *, by_client: bool) -> None:
        """Record bytes that the client, or the server, has sent. The bytes are copied."""
        recorder, side, count = self._recorder, Side.CLIENT if by_client else Side.SERVER, len(data)
        recorder.seen_bytes[side] += count
        if not recorder.has_room(count):
            recorder.dropped_bytes += count
            self._dropped[side] += count
            return
        self._note_dropped(side)
        recorder.put(Bytes(self._number, recorder.now_ns(), side, bytes(data)))

    def ended(self, *, by_client: bool) -> None:
        """Record that the client, or the server, sends no more; later calls for the same side do nothing."""
        side = Side.CLIENT if by_client else Side.SERVER
        if side in self._open:
            self._open.remove(side)
            self._note_dropped(side)
            self._recorder.put(Closed(self._number, self._recorder.now_ns(), side))

    def _note_dropped(self, side: Side) -> None:
        if self._dropped[side]:
            dropped, self._dropped[side] = self._dropped[side], 0
            self._recorder.put(Dropped(self._number, self._recorder.now_ns(), side, dropped))


def _size(event: Event) -> int:
    return EVENT_BYTES + (len(event.data) if isinstance(event, Bytes) else 0)
