"""Run `weir` as a user does, and check how it ends."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

from click.testing import CliRunner, Result

from weir.cli.exits import DONE, USAGE
from weir.cli.main import weir


def error_line(result: Result, exit_code: int = USAGE) -> str:
    """The one line that a command which fails prints."""
    assert result.exit_code == exit_code, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("weir: ")
    return line


def refused(*arguments: str) -> str:
    """The one line that `weir run` prints for options that it refuses."""
    return error_line(CliRunner().invoke(weir, ["run", *arguments]))


def on_terminal(columns: int, *arguments: str) -> str:
    """What a command that succeeds writes to a terminal of so many columns."""
    environment = {**os.environ, "PYTHONPATH": ".", "TERM": "xterm-256color", "COLUMNS": str(columns)}
    theirs, ours = pty.openpty()
    with open(theirs, "rb", buffering=0) as screen:  # noqa: PTH123  # a descriptor
        process = subprocess.Popen(
            [sys.executable, "-m", "weir.cli", *arguments], stdout=ours, env=environment
        )
        os.close(ours)
        text = b""
        with suppress(OSError):  # what a terminal's end is told
            while part := screen.read(65536):
                text += part
        assert process.wait(60) == DONE
    return text.decode()
