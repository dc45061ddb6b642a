"""Counts of records: written by the loop and the writer's thread, read by metrics and the log."""

from __future__ import annotations

import threading
from enum import StrEnum


class Kind(StrEnum):
    """The kind of a record; files and topics have this name."""

    USAGE = "usage"
    TRACE = "trace"


class Loss(StrEnum):
    """Why records were dropped."""

    QUEUE_FULL = "queue_full"
    """The disk or the cluster was too slow, or away, and the queue is full."""
    TRACES_MAX = "traces_max"
    """An interval had more traced requests than may be kept."""
    UNDELIVERED = "undelivered"
    """The cluster did not acknowledge records in time, or refused them."""
    FILE_LOST = "file_lost"
    """Written to a file that disappeared, or could not be finished."""
    SHUTDOWN = "shutdown"
    """Still waiting when Weir stopped."""
    INTERNAL_ERROR = "internal_error"
    """A bug in Weir."""


class Tally:
    """Counts since the start; each is read without the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.written = dict.fromkeys(Kind, 0)
        """Number of records in a file, or acknowledged by the cluster."""
        self.dropped = dict.fromkeys(Loss, 0)
        self.written_bytes = 0
        self.queued = 0
        """Number of records that wait for the writer."""
        self.unacknowledged = 0
        """Number of records sent to the cluster and not acknowledged."""
        self.last_written_s = 0.0
        """Unix time (s) of the last write; 0 if none."""
        self.failure = ""
        """Why nothing can be written now; empty while writing works."""
        self.finished_files = 0
        self.recovered_files = 0
        """Number of files finished for processes that were killed."""
        self.deleted_files = 0
        self.deleted_bytes = 0

    def note_written(self, kind: Kind, records: int, length: int, now_s: float) -> None:
        """Count records as written."""
        with self._lock:
            self.written[kind] += records
            self.written_bytes += length
            self.last_written_s = now_s
            self.failure = ""

    def note_dropped(self, loss: Loss, records: int) -> None:
        """Count records as dropped."""
        with self._lock:
            self.dropped[loss] += records
