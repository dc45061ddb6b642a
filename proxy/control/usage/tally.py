"""What became of the records: counted by the loop and by the writer's thread, read by metrics and the log."""

from __future__ import annotations

import threading
from enum import StrEnum


class Kind(StrEnum):
    """What a record is about; files and topics are called so."""

    USAGE = "usage"
    TRACE = "trace"


class Loss(StrEnum):
    """Why records were dropped."""

    QUEUE_FULL = "queue_full"
    """The disk or the cluster took less than what came, or nothing, and no more may wait."""
    TRACES_MAX = "traces_max"
    """More traced requests in an interval than may be kept."""
    UNDELIVERED = "undelivered"
    """The cluster did not take them in time, or refused them."""
    FILE_LOST = "file_lost"
    """Written to a file that was gone, or could not be finished."""
    SHUTDOWN = "shutdown"
    """Still waiting when Weir stopped."""
    INTERNAL_ERROR = "internal_error"
    """A bug of ours."""


class Tally:
    """Everything since start; numbers are read without the lock, each by itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.written = dict.fromkeys(Kind, 0)
        """In a file, or acknowledged by the cluster."""
        self.dropped = dict.fromkeys(Loss, 0)
        self.written_bytes = 0
        self.queued = 0
        """Records that wait for the writer now."""
        self.unacknowledged = 0
        """Records that are on their way to the cluster now."""
        self.last_written_s = 0.0
        """Since 1970; 0 if nothing was written yet."""
        self.failure = ""
        """Why nothing can be written now; empty while it can."""
        self.finished_files = 0
        self.recovered_files = 0
        """Finished for others that were killed."""
        self.deleted_files = 0
        self.deleted_bytes = 0

    def note_written(self, kind: Kind, records: int, length: int, now_s: float) -> None:
        """So many records are out of Weir's hands."""
        with self._lock:
            self.written[kind] += records
            self.written_bytes += length
            self.last_written_s = now_s
            self.failure = ""

    def note_dropped(self, loss: Loss, records: int) -> None:
        """So many will be nowhere."""
        with self._lock:
            self.dropped[loss] += records
