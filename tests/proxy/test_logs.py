"""Log lines: one bug must not cost seconds, nor show what clients sent."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import threading
import traceback
from typing import Final, Literal

import click
import pytest
import structlog

from weir.proxy import log_writer, logs
from weir.proxy.log_writer import LogQueue, LostLines


def _fail() -> None:
    secret = b"what a client sent"
    raise ZeroDivisionError("a bug") if secret else AssertionError


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_names_the_place_and_not_the_data(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", form)  # type: ignore[arg-type]  # parametrized
    try:
        _fail()
    except ZeroDivisionError as error:
        structlog.get_logger().exception("internal error", exc_info=error)
    printed = capsys.readouterr().err
    assert "test_logs.py" in printed
    assert "in _fail" in printed
    assert "ZeroDivisionError: a bug" in printed
    assert "what a client sent" not in printed


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_log_line_that_cannot_be_written_raises_nothing(
    form: Literal["console", "json"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of the log has gone, or its disk is full."""
    receiver, sender = os.pipe()
    os.close(receiver)
    with os.fdopen(sender, "w", buffering=1) as broken:
        monkeypatch.setattr(sys, "stderr", broken)
        logs.configure("debug", form)
        log = structlog.get_logger()
        for write in (log.debug, log.info, log.warning, log.error, log.exception, log.critical):
            write("an event", detail=5)
        with contextlib.suppress(BrokenPipeError):
            broken.close()  # which writes what was not written
    log.error("another event")


def test_json_log_lines_are_valid_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "auto")
    structlog.get_logger().info("broker found", node_id=3)
    structlog.get_logger().debug("too detailed")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line) | {"timestamp": ""} == {
        "event": "broker found",
        "level": "info",
        "node_id": 3,
        "timestamp": "",
    }


def test_the_audit_log_is_written_at_every_log_level(capsys: pytest.CaptureFixture[str]) -> None:
    audit = logs.audit_logger("weir.audit")  # made when a module is imported, before logs are configured
    logs.configure("error", "json")
    structlog.get_logger().warning("not this")
    audit.info("quota altered", after=5)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line) | {"timestamp": ""} == {
        "log": "weir.audit",
        "event": "quota altered",
        "level": "info",
        "after": 5,
        "timestamp": "",
    }


@pytest.mark.parametrize("form", ["console", "json"])
def test_client_names_in_log_lines_cannot_control_a_terminal(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They may clear it, rename its window, or look like further lines."""
    logs.configure("info", form)  # type: ignore[arg-type]  # parametrized
    structlog.get_logger().info(
        "would have throttled", client_id="app\x1b[2J\x9b1A\n[info] quota altered", user="\x1b]0;x\x07\u202e"
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert "would have throttled" in line


class _File:
    """An unbuffered file: what each write does is given, a number of bytes or an errno."""

    def __init__(self, *writes: int) -> None:
        self._writes = list(writes)
        self.written = bytearray()

    def write(self, data: bytes, /) -> int:
        does = self._writes.pop(0) if self._writes else len(data)
        if does < 0:
            raise OSError(-does, os.strerror(-does))
        self.written += data[:does]
        return min(does, len(data))

    def fileno(self) -> int:
        raise OSError


def _lines(file: _File, *lines: str) -> list[str]:
    """What is in the file after these lines were written."""
    lost = LostLines()
    writer = LogQueue(file, lost, "lost {}\n".format)
    for line in lines:
        writer.put(line)
    writer.close()
    assert lost.count == sum(line.count("b") for line in lines), "lines with b are those that get lost"
    return file.written.decode().splitlines()


FULL: Final = -errno.ENOSPC


@pytest.mark.parametrize(
    ("writes", "lines", "expected"),
    [
        pytest.param((FULL, FULL), "b1 b2 3 4", ["3", "lost 2", "4"], id="lost lines: behind the next line"),
        pytest.param((2, -errno.EFBIG), "bxx 2", ["bx", "2", "lost 1"], id="a part of a line is ended"),
        pytest.param((1, 2, 1), "1234567 2", ["1234567", "2"], id="a short write is continued"),
        pytest.param((FULL, 2, FULL, 2), "b1 2 3", ["2", "3", "lost 1"], id="a loss is told later"),
    ],
)
def test_log_lines_survive_failed_writes(writes: tuple[int, ...], lines: str, expected: list[str]) -> None:
    assert _lines(_File(*writes), *(f"{line}\n" for line in lines.split())) == expected


def test_a_descriptor_made_non_blocking_loses_no_log_line() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    lost = LostLines()
    with os.fdopen(writer, "wb", buffering=0) as raw, os.fdopen(reader, "rb") as read:
        lines = LogQueue(raw, lost, str)
        for number in range(5000):
            lines.put(f"{number:0100}\n")
        assert [int(read.readline()) for _ in range(5000)] == list(range(5000))
        lines.close()
    assert lost.count == 0


def test_the_queue_of_log_lines_is_bounded_and_closing_it_waits_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "QUEUE_BYTES_MAX", 100)
    monkeypatch.setattr(log_writer, "FLUSH_S", 0.01)
    readable = threading.Event()

    class Stuck(_File):
        def write(self, data: bytes, /) -> int:
            readable.wait()
            return super().write(data)

    lost = LostLines()
    writer = LogQueue(Stuck(), lost, str)
    for _ in range(100):
        writer.put("123456789\n")
    assert lost.count == 90
    writer.close()
    readable.set()
    assert lost.count == 100


def test_everything_for_standard_error_goes_through_the_queue_in_whole_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Warnings, tracebacks and errors in finalizers must not block the proxy either."""
    with logs.in_background():
        assert not sys.stderr.isatty()
        sys.stderr.write("a ")
        traceback.print_exception(ZeroDivisionError("careful"))
        print("b\ud800", file=sys.stderr)
        click.echo("weir: c", err=True)
    assert capsys.readouterr().err == "a ZeroDivisionError: careful\nb\\ud800\nweir: c\n"


def test_a_log_line_that_cannot_be_rendered_is_lost_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    class Unprintable:
        def __repr__(self) -> str:
            raise ZeroDivisionError

    logs.configure("info", "json")
    before = logs.lost_lines()
    structlog.get_logger().info("an event", detail=Unprintable())
    assert logs.lost_lines() == before + 1
    assert capsys.readouterr().err == ""


def test_weir_logs_nowhere_if_it_was_started_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    before = logs.lost_lines()
    with logs.in_background():
        logs.configure("info", "auto")
        structlog.get_logger().info("an event")
    assert logs.lost_lines() == before + 1
