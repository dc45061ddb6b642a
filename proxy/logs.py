"""Log lines: key-value on a terminal, JSON otherwise; always on standard error.

A failure of logging ends nothing: a line that cannot be rendered or written is lost and counted. In `weir
run`, logging does not block either: all text for standard error goes through a queue (`proxy.log_writer`),
also tracebacks and warnings of Python itself.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TextIO, TypeAlias

import structlog

from weir.proxy.log_writer import LogQueue, LostLines, Raw

LOST: Final = LostLines()
PARTIAL_MAX: Final = 64 * 1024
"""Maximum number of characters without an end of line that are kept until the line is complete."""

Write: TypeAlias = Callable[[int, Mapping[str, object]], None]
"""Function (number of events, details of the latest event) that writes one log line about the events."""
Note: TypeAlias = Callable[[Hashable, Write, Mapping[str, object]], None]
"""Function (kind, write, details) that counts an event of this kind. It has `write` write a log line now, or
soon one line for several events.
"""


def at_once(_kind: Hashable, write: Write, details: Mapping[str, object]) -> None:
    """Write a log line for each event (a `Note` without a limit)."""
    write(1, details)


def audit_logger(name: str) -> structlog.types.FilteringBoundLogger:
    """Return a logger whose lines are written at every log level, and have the field `log` with this name."""
    every = structlog.make_filtering_bound_logger(logging.NOTSET)
    logger: structlog.types.FilteringBoundLogger = structlog.wrap_logger(
        None, wrapper_class=every, logger_factory_args=(name,), log=name
    )
    return logger


def _escape(
    _logger: structlog.types.WrappedLogger, _method: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    """Escape control characters: clients choose names, and terminals obey such characters."""
    return {key: _escaped(value) if isinstance(value, str) else value for key, value in event.items()}


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _strict_json(event: structlog.types.EventDict, default: Callable[[object], object]) -> str:
    """Return an event as JSON. Numbers that JSON lacks (infinite, NaN) become null."""
    try:
        return json.dumps(event, default=default, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(event), default=default, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Lines:
    """Writes log lines to a file, and counts as lost the lines that cannot be written."""

    def __init__(self, file: TextIO | None) -> None:
        """Begin to write to `file`; None if the process was started without standard error."""
        self._file = file

    def msg(self, message: str) -> None:
        """Write one log line; count the line as lost if writing fails. structlog calls a method per log
        level; all these methods are this one.
        """
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
    """A logger for structlog that keeps the latest error line as text instead of writing the line."""

    def __init__(self) -> None:
        self.line = ""

    def error(self, message: str) -> None:
        """Store the rendered line in `line`, with an end of line. structlog calls this method for a line of
        level error.
        """
        self.line = message + "\n"


class _Guarded:
    """Runs the last processors of a log line. If a processor raises, the line is dropped instead: a line
    contains names and errors of any kind, whose rendering may fail.
    """

    def __init__(self, processors: list[structlog.types.Processor]) -> None:
        self._processors = processors

    def __call__(
        self, logger: structlog.types.WrappedLogger, method: str, event: structlog.types.EventDict
    ) -> Any:  # each processor takes the result of the one before
        """Return the rendered log line. If a processor fails, count the line as lost and raise DropEvent, for
        which structlog drops the line.
        """
        rendered: Any = event
        try:
            for processor in self._processors:
                rendered = processor(logger, method, rendered)
        except Exception:  # noqa: BLE001  # also of a `__repr__`
            LOST.add(1)
            raise structlog.DropEvent from None
        return rendered


def configure(level: str, form: Literal["auto", "console", "json"] = "auto") -> None:
    """Configure structlog for the process. The form `auto` stands for `console` if standard error is a
    terminal, and for `json` otherwise.
    """
    stderr = sys.stderr
    on_terminal = stderr is not None and stderr.isatty()
    colours = on_terminal and not os.environ.get("NO_COLOR")
    console = form == "console" or (form == "auto" and on_terminal)
    plain = structlog.dev.plain_traceback  # rich's shows variables, and so clients' data, and takes seconds
    renderers: list[structlog.types.Processor] = (
        [_escape, structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_strict_json)]
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
    """Within the `with` block, put all text for `sys.stderr` into a queue that a thread writes out, so that
    no write blocks or raises. At the end of the block, wait up to `proxy.log_writer.FLUSH_S` for the lines in
    the queue.
    """
    stderr = sys.stderr
    if stderr is None:  # the process was started without standard error
        yield
        return
    with suppress(OSError, ValueError):
        stderr.flush()
    writer = LogQueue(_raw(stderr), LOST, _notice)
    sys.stderr = _Queued(writer, stderr)
    try:
        yield
    finally:
        writer.close()
        sys.stderr = stderr


def lost_lines() -> int:
    """Return the number of log lines that were lost since the process started."""
    return LOST.count


def _notice(count: int) -> str:
    """Return the log line that tells operators the number of lost lines. The line is logged at every log
    level.
    """
    kept = _KeptLine()
    log = structlog.wrap_logger(kept)
    log.error("log lines lost", count=count)
    return kept.line


def _raw(file: TextIO) -> Raw:
    """Return the unbuffered file below a text file. If the text file has none, as in tests, return its
    buffer.
    """
    raw: Raw = getattr(file.buffer, "raw", file.buffer)
    return raw


class _Queued(io.TextIOBase):
    """A replacement of standard error that puts complete lines into a queue. The lines of one call of `write`
    stay together.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, writer: LogQueue, stderr: TextIO) -> None:
        self._writer = writer
        self._stderr = stderr
        self._partial = threading.local()

    def write(self, text: str, /) -> int:
        """Queue the complete lines in `text`; keep an incomplete last line for this thread's next write.
        Return the number of characters.
        """
        if not isinstance(text, str):
            raise TypeError(f"standard error takes text, not {type(text).__name__}")
        whole = getattr(self._partial, "text", "") + text
        end = len(whole) if len(whole) > PARTIAL_MAX else whole.rfind("\n") + 1
        self._partial.text = whole[end:]
        if end:
            self._writer.put(whole[:end])
        return len(text)

    def writable(self) -> bool:
        """Return True: Python's text files have this method, and a replacement of one needs it."""
        return True

    def isatty(self) -> bool:
        """Return True if standard error is a terminal."""
        return self._stderr.isatty()

    def fileno(self) -> int:
        """Return the descriptor of standard error. Raises OSError if standard error has no descriptor, as in
        tests.
        """
        return self._stderr.fileno()
