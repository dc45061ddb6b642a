"""Exit codes of the `weir` command, stable across releases."""

from __future__ import annotations

import signal
import sys
from typing import IO, Final, NoReturn

import click

DONE: Final = 0
FAILED: Final = 1
"""What was asked for did not come true (a demo whose rates miss their quotas), or is not there (a quota)."""
USAGE: Final = 2
"""Usage, configuration, or surroundings that Weir cannot start in."""
INCOMPLETE: Final = 3
"""Done, but for what is listed as left out (quotas that an import skipped)."""


class CommandError(click.ClickException):
    """A command cannot do what it was asked for: one line on stderr, exit code 2."""

    exit_code = USAGE

    def show(self, file: IO[str] | None = None) -> None:
        """Print the line."""
        click.echo(f"weir: {self.format_message()}", file=file, err=file is None)


class StoppedError(CommandError):
    """Ctrl-C has stopped what was asked for: one line on stderr, exit code 130."""

    exit_code = 128 + signal.SIGINT


class NothingThereError(CommandError):
    """What was asked for is not there: one line on stderr, exit code 1."""

    exit_code = FAILED


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run a command line and exit; `name` is what it is called by."""
    try:
        sys.exit(command(prog_name=name, standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(USAGE)
    except click.ClickException as error:
        click.echo(f"weir: {error.format_message().rstrip('.')}{_where_to_look(error)}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(128 + signal.SIGINT)


def _where_to_look(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f": see {context.command_path} --help" if context is not None else ""
