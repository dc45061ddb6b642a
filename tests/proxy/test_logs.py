"""Log lines: one bug must not cost seconds, nor show what clients sent."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Literal

import pytest
import structlog

from proxy import logs


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
