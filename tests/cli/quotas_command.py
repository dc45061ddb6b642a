"""Run `weir quotas` as a user does, and check its exit code."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner, Result

from cli.exits import DONE, USAGE
from cli.main import main, weir


def run(*arguments: str) -> Result:
    return CliRunner().invoke(weir, ["quotas", *arguments])


def done(*arguments: str) -> str:
    """What a command that succeeds prints on stdout."""
    result = run(*arguments)
    assert result.exit_code == DONE, result.output
    return result.stdout


def failed(exit_code: int, *arguments: str) -> str:
    """The one line of a command that fails."""
    result = run(*arguments)
    assert result.exit_code == exit_code, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("weir: ")
    return line.removeprefix("weir: ")


def misused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command whose usage is wrong."""
    monkeypatch.setattr(sys, "argv", ["weir", "quotas", *arguments])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == USAGE
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert (out, line[:6]) == ("", "weir: ")
    return str(line[6:])
