"""The writer's thread, and the bounded queue of records before it. Callers of `put` never wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from weir.proxy.control.usage.outlet import Outlet, OutletError, Record
from weir.proxy.control.usage.tally import Kind, Loss, Tally

log = structlog.get_logger("weir.usage")

CHUNK: Final = 100
"""Number of records written in one step. Between steps, other threads run: in particular the thread that
serves sockets.
"""
RETRY_S: Final = 1.0
TEND_S: Final = 0.5


class Writer:
    """Takes records from the thread that serves sockets, and writes them to an outlet in its own thread."""

    def __init__(
        self, outlet: Outlet, tally: Tally, queue_records: int, monotonic_s: Callable[[], float]
    ) -> None:
        """Begin with an empty queue. At most `queue_records` may wait, the ones sent to a cluster and not
        acknowledged included.
        """
        self.outlet = outlet
        self.tally = tally
        self._queue_records = queue_records
        self._monotonic_s = monotonic_s
        self._queue: deque[tuple[Kind, Sequence[Record]]] = deque()
        self._taken = 0
        """Number of records of the queue's first batch that were already written."""
        self._changed = threading.Condition()
        self._deadline_s: float | None = None
        """Monotonic time (s) by which the thread must end; None until `close` is called."""
        self._opened = False
        self._thread = threading.Thread(target=self._run, name="weir-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, kind: Kind, records: Sequence[Record]) -> None:
        """Queue records as long as there is room, and count the others as dropped. Does not wait."""
        with self._changed:
            waiting = self.tally.queued + self.tally.unacknowledged
            room = 0 if self._deadline_s is not None else max(self._queue_records - waiting, 0)
            if accepted := records[:room]:
                self._queue.append((kind, accepted))
                self.tally.queued += len(accepted)
                self._changed.notify()
        if len(accepted) < len(records):
            self.tally.note_dropped(Loss.QUEUE_FULL, len(records) - len(accepted))

    def close(self, timeout_s: float) -> None:
        """Write the waiting records and close the outlet within `timeout_s`; count the other records as
        dropped. Blocks.
        """
        with self._changed:
            self._deadline_s = self._monotonic_s() + timeout_s
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._drop_all()

    def _run(self) -> None:
        while self._deadline_s is None:
            wait_s = self.turn()
            with self._changed:
                if wait_s and self._deadline_s is None:
                    self._changed.wait(wait_s)
        self.finish()

    def turn(self) -> float:
        """Open the outlet if necessary, let it do its periodic work, and write one step of the waiting
        records. Return the time (s) to wait before the next call.
        """
        try:
            if not self._opened:
                self.outlet.open()
                self._opened = True
            self.outlet.tend()
            return self._write_chunk()
        except OutletError as error:
            self._opened = False
            self.tally.failure = str(error)
            return RETRY_S
        except Exception:  # a bug must affect only the records at hand
            log.exception(
                "internal error while records were written; please report this", to=self.outlet.name
            )
            self._drop_first()
            return RETRY_S

    def _write_chunk(self) -> float:
        """Write the next records of the queue's first batch. Return the time (s) to wait before the next
        call: 0 unless the queue is empty. Raises OutletError.
        """
        with self._changed:
            if not self._queue:
                return TEND_S
            kind, batch = self._queue[0]
        taken = self.outlet.write(kind, batch[self._taken : self._taken + CHUNK])
        with self._changed:
            if not self._queue:  # too late: all are counted as dropped
                return 0.0
            self._taken += taken
            self.tally.queued -= taken
            if self._taken == len(batch):
                self._queue.popleft()
                self._taken = 0
        return 0.0

    def finish(self) -> None:
        """Write waiting records until none is left, the deadline passes or the outlet fails; then close the
        outlet.
        """
        assert self._deadline_s is not None
        while self._queue and self._monotonic_s() < self._deadline_s and self.turn() != RETRY_S:
            pass
        with suppress(Exception):  # `close` counts records that were not written
            self.outlet.close(max(self._deadline_s - self._monotonic_s(), 0.0))

    def _drop_first(self) -> None:
        with self._changed:
            if not self._queue:
                return
            _kind, batch = self._queue.popleft()
            dropped, self._taken = len(batch) - self._taken, 0
            self.tally.queued -= dropped
        self.tally.note_dropped(Loss.INTERNAL_ERROR, dropped)

    def _drop_all(self) -> None:
        with self._changed:
            self._queue.clear()
            dropped, self._taken, self.tally.queued = self.tally.queued, 0, 0
        if dropped:
            self.tally.note_dropped(Loss.SHUTDOWN, dropped)
