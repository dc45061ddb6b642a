"""Log lines: key-value on a terminal, JSON in production; always on standard error."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Literal, TextIO

import structlog


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
    """Prints lines; drops lines that cannot be printed."""

    def __init__(self, file: TextIO) -> None:
        self._printer = structlog.PrintLogger(file)

    def msg(self, message: str) -> None:
        """Print a line. (structlog asks for a method per level.)"""
        with suppress(OSError, ValueError):  # ValueError: a closed file
            self._printer.msg(message)

    debug = info = warning = error = critical = exception = msg


def configure(level: str, form: Literal["auto", "console", "json"]) -> None:
    """Set up structlog for the process; `form` auto is console on a terminal, else JSON."""
    stderr = sys.stderr
    on_terminal = stderr.isatty()
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
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_names: _Lines(stderr),
    )
