"""Write log lines in a thread, so that a reader that hangs, or a disk that is slow or full, delays nothing
else.

Lines wait in a queue of bounded size. A line is lost if the queue is full or the line cannot be written. Lost
lines are counted, and a later line tells their number.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

QUEUE_BYTES_MAX: Final = 4 << 20
"""Maximum size (bytes) of the lines that wait: about 20,000 lines."""
TELL_S: Final = 1.0
"""Minimum time (s) between two lines about lost lines while other lines wait."""
FLUSH_S: Final = 1.0
"""Maximum time (s) for writing the waiting lines at the end of the process."""


class Raw(Protocol):
    """An unbuffered binary file, blocking or not."""

    def write(self, data: bytes, /) -> int | None:
        """Write some bytes and return their number; None if no byte can be written now. Raises OSError."""

    def fileno(self) -> int:
        """Return the file's descriptor."""


class LostLines:
    """Counter of the log lines that were lost since the process started."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.RLock()  # a finalizer may log while its thread holds the lock

    def add(self, lines: int) -> None:
        """Add a number of lost lines to the count. Callable from any thread."""
        with self._lock:
            self.count += lines


class LogQueue:
    """A queue of log lines and the thread that writes them."""

    def __init__(self, raw: Raw, lost: LostLines, notice: Callable[[int], str]) -> None:
        """Begin with an empty queue, and start the thread. `notice` returns the line that tells a number of
        lost lines.
        """
        self._raw = raw
        self._lost = lost
        self._told = lost.count
        self._tell_at_s = 0.0
        self._notice = notice
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition(threading.RLock())  # reentrant, as in LostLines
        self._closed = False
        self._line_begun = False
        """True if only a part of the latest line was written, because writing failed."""
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: str) -> None:
        """Queue a line to be written soon. Never blocks, never raises."""
        data = line.encode("utf-8", "backslashreplace")
        with self._changed:
            if self._closed or self._bytes + len(data) > QUEUE_BYTES_MAX:
                self._lost.add(1)
                return
            self._lines.append(data)
            self._bytes += len(data)
            self._changed.notify_all()

    def close(self) -> None:
        """Write the waiting lines for at most `FLUSH_S`; count the others, and all later lines, as lost."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, FLUSH_S)
            self._closed = True
            self._lost.add(len(self._lines))
            self._lines.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while (line := self._next()) is not None:
            if not self._write(line):
                self._lost.add(1)
            elif self._lost.count > self._told:
                self._tell()
            self._written(line)

    def _next(self) -> bytes | None:
        """Wait for a line and return it; the line stays in the queue. Return None once the writer
        is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed)
            return None if self._closed else self._lines[0]

    def _written(self, line: bytes) -> None:
        with self._changed:
            if not self._closed:
                self._lines.popleft()
                self._bytes -= len(line)
                self._changed.notify_all()

    def _tell(self) -> None:
        """Write a line with the number of lines lost since the last such line, if any; at most once in
        `TELL_S` while other lines wait.
        """
        now_s = time.monotonic()
        if len(self._lines) > 1 and now_s < self._tell_at_s:
            return
        self._tell_at_s = now_s + TELL_S
        count = self._lost.count
        if self._write(self._notice(count - self._told).encode("utf-8", "backslashreplace")):
            self._told = count

    def _write(self, line: bytes) -> bool:
        """Write a line; return False if writing has failed. If the line before was written in part, end that
        line first.
        """
        data = b"\n" + line if self._line_begun else line
        try:
            while data:
                count = self._raw.write(data)
                if count is None:  # another process has made the descriptor non-blocking
                    select.select((), (self._raw,), ())
                    continue
                self._line_begun = data[count - 1 : count] != b"\n"
                data = data[count:]
        except (OSError, ValueError):  # ValueError: a closed file
            return False
        return True
