"""Log lines: key-value on a terminal, JSON in production; always on standard error.

Logging ends nothing: a line that cannot be rendered or written is lost and counted. In `weir run` logging
also waits for nothing: everything for standard error goes through a queue (`proxy.log_writer`), also
tracebacks and warnings of Python itself.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TextIO

import structlog

from proxy.log_writer import LogWriter, LostLines, Raw

LOST: Final = LostLines()
PARTIAL_MAX: Final = 64 * 1024
"""Number of characters without an end of line that wait for more."""


def audit_logger(name: str) -> structlog.types.FilteringBoundLogger:
    """Return a logger whose lines are written at any log level, and have the field `log`."""
    every = structlog.make_filtering_bound_logger(logging.NOTSET)
    logger: structlog.types.FilteringBoundLogger = structlog.wrap_logger(
        None, wrapper_class=every, logger_factory_args=(name,), log=name
    )
    return logger


def _escape(
    _logger: structlog.types.WrappedLogger, _method: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    """Escape control characters: clients choose names, and terminals obey them. (JSON escapes anyway.)"""
    return {key: _escaped(value) if isinstance(value, str) else value for key, value in event.items()}


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class _Lines:
    """Writes lines; counts lines that cannot be written."""

    def __init__(self, file: TextIO | None) -> None:
        """None: the process was started without standard error."""
        self._file = file

    def msg(self, message: str) -> None:
        """Write a line. (structlog asks for a method per level.)"""
        if self._file is None:
            LOST.add(1)
            return
        try:
            self._file.write(message + "\n")
            self._file.flush()
        except (OSError, ValueError):  # ValueError: a closed file
            LOST.add(1)

    debug = info = warning = error = critical = exception = msg


class _KeptLine:
    """Keeps a line instead of writing it."""

    def __init__(self) -> None:
        self.line = ""

    def error(self, message: str) -> None:
        """Keep the line."""
        self.line = message + "\n"


class _Guarded:
    """The last processors, as one that never raises: names and errors of any kind are in log lines."""

    def __init__(self, processors: list[structlog.types.Processor]) -> None:
        self._processors = processors

    def __call__(
        self, logger: structlog.types.WrappedLogger, method: str, event: structlog.types.EventDict
    ) -> Any:  # each processor takes the result of the one before
        """Render. Raises DropEvent, which structlog obeys silently."""
        rendered: Any = event
        try:
            for processor in self._processors:
                rendered = processor(logger, method, rendered)
        except Exception:  # noqa: BLE001  # also of a `__repr__`
            LOST.add(1)
            raise structlog.DropEvent from None
        return rendered


def configure(level: str, form: Literal["auto", "console", "json"]) -> None:
    """Set up structlog for the process; `form` auto is console on a terminal, else JSON."""
    stderr = sys.stderr
    on_terminal = stderr is not None and stderr.isatty()
    console = form == "console" or (form == "auto" and on_terminal)
    plain = structlog.dev.plain_traceback  # rich's shows variables, and so clients' data, and takes seconds
    renderers: list[structlog.types.Processor] = (
        [_escape, structlog.dev.ConsoleRenderer(colors=on_terminal, exception_formatter=plain)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _Guarded(renderers),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_names: _Lines(stderr),
    )


@contextmanager
def in_background() -> Iterator[None]:
    """Within the block, nothing that is written to `sys.stderr` blocks or raises; the end of the block waits
    a short time (`proxy.log_writer.FLUSH_S`) for lines that are not written yet.
    """
    stderr = sys.stderr
    if stderr is None:  # the process was started without one
        yield
        return
    with suppress(OSError, ValueError):
        stderr.flush()
    writer = LogWriter(_raw(stderr), LOST, _notice)
    sys.stderr = _Queued(writer, stderr)
    try:
        yield
    finally:
        writer.close()
        sys.stderr = stderr


def lost_lines() -> int:
    """Return the number of log lines that could not be written since the process started."""
    return LOST.count


def _notice(count: int) -> str:
    """Return the line that tells how many lines are lost; at every log level."""
    kept = _KeptLine()
    log = structlog.wrap_logger(kept)
    log.error("log lines lost", count=count)
    return kept.line


def _raw(file: TextIO) -> Raw:
    """Return the unbuffered file below a text file; a test's file in memory has none."""
    raw: Raw = getattr(file.buffer, "raw", file.buffer)
    return raw


class _Queued(io.TextIOBase):
    """Standard error whose lines go to a queue; lines of one write stay together."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, writer: LogWriter, stderr: TextIO) -> None:
        self._writer = writer
        self._stderr = stderr
        self._partial = threading.local()

    def write(self, text: str, /) -> int:
        """Queue whole lines; keep a part of a line for this thread's next write."""
        if not isinstance(text, str):
            raise TypeError(f"standard error takes text, not {type(text).__name__}")
        whole = getattr(self._partial, "text", "") + text
        end = len(whole) if len(whole) > PARTIAL_MAX else whole.rfind("\n") + 1
        self._partial.text = whole[end:]
        if end:
            self._writer.put(whole[:end])
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return True if standard error is a terminal."""
        return self._stderr.isatty()

    def fileno(self) -> int:
        """Return the descriptor of standard error. Raises OSError in tests."""
        return self._stderr.fileno()
