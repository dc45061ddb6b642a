"""Writes log lines in a thread: a reader that hangs, or a disk that is slow or full, delays nothing else.

Lines wait in a queue of bounded size. A line that finds the queue full, or that cannot be written, is lost
and counted; a later line tells the number.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

QUEUE_BYTES_MAX: Final = 4 << 20
"""Size of the lines that may wait: 20,000 lines or so."""
TELL_S: Final = 1.0
"""Time (s) between two lines about losses while other lines wait."""
FLUSH_S: Final = 1.0
"""Time (s) that waiting lines have at the end of the process."""


class Raw(Protocol):
    """An unbuffered binary file, blocking or not."""

    def write(self, data: bytes, /) -> int | None:
        """Write some bytes and return their number; None if none can be written now. Raises OSError."""

    def fileno(self) -> int:
        """Return the descriptor."""


class LostLines:
    """Number of log lines that were not written since the process started."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.RLock()  # a finalizer may log while its thread is in here

    def add(self, lines: int) -> None:
        """Count lost lines."""
        with self._lock:
            self.count += lines


class LogWriter:
    """A queue of log lines and the thread that writes them."""

    def __init__(self, raw: Raw, lost: LostLines, notice: Callable[[int], str]) -> None:
        """Start the thread; `notice` returns the line that tells a number of lost lines."""
        self._raw = raw
        self._lost = lost
        self._told = lost.count
        self._tell_at_s = 0.0
        self._notice = notice
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition(threading.RLock())  # as in LostLines
        self._closed = False
        self._line_begun = False
        """True if the latest line was written in part."""
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: str) -> None:
        """Have a line written soon. Never blocks, never raises."""
        data = line.encode("utf-8", "backslashreplace")
        with self._changed:
            if self._closed or self._bytes + len(data) > QUEUE_BYTES_MAX:
                self._lost.add(1)
                return
            self._lines.append(data)
            self._bytes += len(data)
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for the lines that have been put, at most `FLUSH_S`; take no more."""
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
        """Wait for a line, which stays in the queue; None at the end."""
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
        """Write the number of lines lost since the last such line; at most once in `TELL_S` while others
        wait.
        """
        now_s = time.monotonic()
        if len(self._lines) > 1 and now_s < self._tell_at_s:
            return
        self._tell_at_s = now_s + TELL_S
        count = self._lost.count
        if self._write(self._notice(count - self._told).encode("utf-8", "backslashreplace")):
            self._told = count

    def _write(self, line: bytes) -> bool:
        """Write a line; return False if that failed. A line that was written in part is ended first."""
        data = b"\n" + line if self._line_begun else line
        try:
            while data:
                count = self._raw.write(data)
                if count is None:  # somebody has made the descriptor non-blocking
                    select.select((), (self._raw,), ())
                    continue
                self._line_begun = data[count - 1 : count] != b"\n"
                data = data[count:]
        except (OSError, ValueError):  # ValueError: a closed file
            return False
        return True
