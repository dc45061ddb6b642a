"""Run `weir quotas` as a user does, and check its exit code."""

from __future__ import annotations

from click.testing import CliRunner, Result

from tests.cli.run_command import error_line
from weir.cli.exits import DONE
from weir.cli.main import weir


def run(*arguments: str) -> Result:
    return CliRunner().invoke(weir, ["quotas", *arguments])


def done(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == DONE, result.output
    return result.stdout


def failed(exit_code: int, *arguments: str) -> str:
    return error_line(run(*arguments), exit_code).removeprefix("weir: ")
