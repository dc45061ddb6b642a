"""The process that writes a capture: `python -m weir.conformance.capture.writing`, started by a recorder.

It ends when the recorder closes its queue, or is killed, and writes all events of the queue before that. So
it ignores the signals that end the recorder. Its priority is low, because connections need the CPU first.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from weir.conformance.capture.blocks import CaptureError, Run
from weir.conformance.capture.redaction import Redaction
from weir.conformance.capture.shared_queue import QueueReceiver
from weir.conformance.capture.writer import CaptureWriter
from weir.conformance.events import Bytes, Dropped, Event

FLUSH_S: Final = 1.0
"""Time (s) after which events are written even if their block is not full."""
PAUSE_S: Final = 0.005
"""Time (s) between two looks at the queue. Meanwhile events collect there: it would cost the sender time to
wake this process for each event.
"""
REPORT_BYTES: Final = 1024 * 1024
"""Number of bytes after which the sender learns that the queue has room again."""
NICE: Final = 10
"""Amount by which the priority is lower than the recorder's."""
ERROR_CHARS_MAX: Final = 1000
"""Maximum length of an error's text: a report of up to 4096 bytes stays whole in a pipe."""


class WritingTask(msgspec.Struct, frozen=True):
    """The work of one process."""

    run: Run
    memory: int
    """Descriptor of the queue's memory."""
    queue_bytes: int
    """Size (bytes) of that memory."""


class CaptureReport(msgspec.Struct):
    """The present state; each report replaces those before."""

    released: int = 0
    """Number of bytes since the queue began that are no longer needed."""
    data_bytes: int = 0
    """Number of bytes of connections in the file."""
    unreadable_bytes: int = 0
    """Number of bytes in which redaction found no frame behind missing bytes."""
    filled_frames: int = 0
    """Number of frames that became filler behind their heads."""
    error: str = ""
    """The error that ended writing, as one line; "" without an error."""
    repaired: str = ""
    """One line about the damage of an existing capture; "" without."""
    next_connection: int = 0
    """Number of the first connection that the recorder opens."""


class Writing:
    """Takes events from a queue, redacts them, and writes them."""

    def __init__(
        self,
        writer: CaptureWriter,
        redaction: Redaction | None,
        queue: QueueReceiver,
        tell: Callable[[CaptureReport], None],
    ) -> None:
        """Own and close the writer. `redaction`: None to write all bytes as they are. `tell` must return at
        once.
        """
        self._writer = writer
        self._redaction = redaction
        self._queue = queue
        self._tell = tell
        self._report = CaptureReport(repaired=writer.repaired, next_connection=writer.next_connection)

    def run(self) -> CaptureReport:
        """Write until the end of the queue, and close the file. Return the last report."""
        self._say()
        try:
            self._write_all()
        except Exception as error:  # noqa: BLE001  # a capture that ends without a word would look complete
            self._fail(error)
            self._discard()
        finally:
            try:
                self._writer.close()
            except OSError as error:
                self._fail(error)
        self._say()
        return self._report

    def _write_all(self) -> None:
        flush_at: float | None = None
        while (events := self._queue.receive(wait=flush_at is None)) is not None:
            if flush_at is None:
                flush_at = time.monotonic() + FLUSH_S
            for event in events:
                self._write(event)
                if self._queue.released - self._report.released >= REPORT_BYTES:
                    self._say()
            if time.monotonic() >= flush_at:
                self._writer.flush()
                self._writer.check_path()
                flush_at = None
            self._say()
            time.sleep(PAUSE_S)
        if self._redaction is not None:
            for event in self._redaction.finish(time.time_ns()):
                self._writer.write(event)

    def _write(self, event: Event) -> None:
        if self._redaction is None:
            self._writer.write(event)
            return
        for redacted in self._redaction.feed(event):
            self._writer.write(redacted)
            if isinstance(redacted, Dropped) and isinstance(event, Bytes):
                self._report.unreadable_bytes += redacted.count

    def _discard(self) -> None:
        """Empty the queue until its end."""
        self._say()
        while (events := self._queue.receive(wait=True)) is not None:
            for _event in events:
                pass
            self._say()

    def _fail(self, error: Exception) -> None:
        """Keep the first error."""
        report = self._report
        report.error = report.error or cannot_write(self._writer.path, error)

    def _say(self) -> None:
        report = self._report
        report.released, report.data_bytes = self._queue.released, self._writer.data_bytes
        report.filled_frames = 0 if self._redaction is None else self._redaction.filled
        self._tell(report)


def cannot_write(path: Path, error: Exception) -> str:
    """Return an error of the file as one line."""
    said = error.strerror if isinstance(error, OSError) else None
    return f"{path}: cannot write it: {said or repr(error)}"[:ERROR_CHARS_MAX]


def tell(report: CaptureReport) -> None:
    """Write a report to stdout; leave it out if the reader is slow or gone."""
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(sys.stdout.fileno(), msgspec.json.encode(report) + b"\n")


def main() -> None:
    """Write the capture `sys.argv[1]` with the task in `sys.argv[2]`. Stdin has the messages of the queue,
    and stdout takes reports.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICE)
    path, task = Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=WritingTask)
    queue = QueueReceiver(task.memory, task.queue_bytes, sys.stdin.fileno())
    try:
        writer = CaptureWriter(path, task.run)
    except (CaptureError, OSError) as error:
        tell(
            CaptureReport(error=str(error) if isinstance(error, CaptureError) else cannot_write(path, error))
        )
        return
    redaction = Redaction(credentials=task.run.redacted, records=task.run.blanked)
    os.set_blocking(sys.stdout.fileno(), False)
    last = Writing(writer, redaction if any(redaction.replaces) else None, queue, tell).run()
    os.set_blocking(sys.stdout.fileno(), True)
    tell(last)


if __name__ == "__main__":
    main()
