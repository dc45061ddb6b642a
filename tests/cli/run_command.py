"""Run `weir` as a user does, and check how it ends."""

from __future__ import annotations

from click.testing import CliRunner, Result

from weir.cli.exits import USAGE
from weir.cli.main import weir


def error_line(result: Result, exit_code: int = USAGE) -> str:
    assert result.exit_code == exit_code, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("weir: ")
    return line


def refused(*arguments: str) -> str:
    """The one line that `weir run` prints for options that it refuses."""
    return error_line(CliRunner().invoke(weir, ["run", *arguments]))
