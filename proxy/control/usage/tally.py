"""Counts of usage records, written by the loop and the writer's thread and read by metrics; log lines about
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import structlog

from weir.proxy.outage import Outage

log = structlog.get_logger("weir.usage")

PERIOD_S: Final = 60.0
QUIET_S: Final = 4.0
"""Time (s) after the latest failure from which the outage counts as over."""


class Kind(StrEnum):
    """Kind of a record: usage of a client, a trace of one request, or an event. Each kind has its own files,
    or its own topic; events have no files.
    """

    USAGE = "usage"
    TRACE = "trace"
    EVENT = "event"


OF_USAGE: Final = (Kind.USAGE, Kind.TRACE)
"""The kinds of usage records."""


class Loss(StrEnum):
    """Reason why records were dropped."""

    QUEUE_FULL = "queue_full"
    """The queue was full, because the disk or the cluster was too slow or not available."""
    TRACES_MAX = "traces_max"
    """More requests were traced between two reads of the traces than Weir keeps in memory."""
    UNDELIVERED = "undelivered"
    """The cluster has refused the records, or has not acknowledged them in time."""
    FILE_LOST = "file_lost"
    """The records were in a file that has disappeared, or that could not be finished."""
    SHUTDOWN = "shutdown"
    """The records were still waiting when Weir stopped."""
    INTERNAL_ERROR = "internal_error"
    """An exception in Weir, caused by a bug, has lost the records."""


class Tally:
    """Counts of usage records and files since the process has started. Reading one count needs no lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.written = dict.fromkeys(Kind, 0)
        """Number of records written to a file or acknowledged by the cluster, by kind."""
        self.dropped = dict.fromkeys(Loss, 0)
        self.written_bytes = 0
        self.queued = 0
        """Number of records that wait for the writer."""
        self.unacknowledged = 0
        """Number of records that were sent to the cluster and not acknowledged yet."""
        self.last_written_s = 0.0
        """Unix time (s) at which records were last written to a file or acknowledged by the cluster; 0 before
        the first time.
        """
        self.failure = ""
        """Reason why records cannot be written now; empty while they can."""
        self.finished_files = 0
        self.recovered_files = 0
        """Number of files that other processes left unfinished because they were killed, and that this
        process has finished.
        """
        self.deleted_files = 0
        self.deleted_bytes = 0

    def note_written(self, kind: Kind, records: int, length: int, now_s: float) -> None:
        """Count `records` as written, and `length` as their size (bytes); record the time."""
        with self._lock:
            self.written[kind] += records
            self.written_bytes += length
            self.last_written_s = now_s
            self.failure = ""

    def note_dropped(self, loss: Loss, records: int) -> None:
        """Count records as dropped, for this reason."""
        with self._lock:
            self.dropped[loss] += records


class WritingReport:
    """Logs problems with the writing of usage records, as counted by a `Tally`: at once if a problem is new,
    then once a minute while it lasts.
    """

    def __init__(self, tally: Tally, to: str, monotonic_s: Callable[[], float]) -> None:
        """Begin with no problem logged. `to` is the name of the records' destination, for the log."""
        self._tally = tally
        self._to = to
        self._monotonic_s = monotonic_s
        self._told_s: dict[str, float] = {}
        self._outage = Outage(
            log,
            "usage cannot be written, trying again",
            "usage is written again",
            level="warning",
            quiet_s=QUIET_S,
            clock=monotonic_s,
        )
        self._dropped = dict(tally.dropped)
        self._deleted = 0
        self._recovered = 0

    def __call__(self, *, last: bool = False) -> None:
        """Log the problems that have occurred since the last call. With `last`, also those that were logged
        less than a minute ago.
        """
        if last:
            self._told_s.clear()
        self._tell_failure()
        self._tell_dropped()
        self._tell_files()

    def _tell_failure(self) -> None:
        failure = self._tally.failure
        if failure:
            self._outage.failed(to=self._to, reason=failure)
        else:
            self._outage.over(to=self._to)

    def _tell_dropped(self) -> None:
        now = dict(self._tally.dropped)
        new = {
            loss.value: count - self._dropped[loss]
            for loss, count in now.items()
            if count > self._dropped[loss]
        }
        if new and self._is_due("dropped"):
            self._dropped = now
            log.warning("usage records dropped", to=self._to, **new)

    def _tell_files(self) -> None:
        tally = self._tally
        if tally.deleted_files > self._deleted and self._is_due("deleted"):
            log.warning(
                "oldest files of usage deleted, usage_keep_bytes is reached",
                to=self._to,
                files=tally.deleted_files - self._deleted,
            )
            self._deleted = tally.deleted_files
        if tally.recovered_files > self._recovered:
            log.info(
                "usage files of killed writers finished",
                to=self._to,
                files=tally.recovered_files - self._recovered,
            )
            self._recovered = tally.recovered_files

    def _is_due(self, what: str) -> bool:
        now_s = self._monotonic_s()
        if now_s - self._told_s.get(what, float("-inf")) < PERIOD_S:
            return False
        self._told_s[what] = now_s
        return True
