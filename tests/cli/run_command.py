"""Run `weir run` with options that it refuses."""

from __future__ import annotations

from click.testing import CliRunner

from cli.exits import USAGE
from cli.main import weir


def refused(*arguments: str) -> str:
    """The one line that a command which cannot run prints."""
    result = CliRunner().invoke(weir, ["run", *arguments])
    assert result.exit_code == USAGE, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line
