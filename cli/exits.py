"""Exit codes of the `weir` command, stable across releases."""

from __future__ import annotations

import signal
import sys
from typing import IO, Final, NoReturn

import click

DONE: Final = 0
FAILED: Final = 1
"""Exit code for a negative result (a demo whose rates miss their quotas) or a missing object (a quota)."""
USAGE: Final = 2
"""Exit code for wrong usage or configuration, or for surroundings in which Weir cannot start."""
INCOMPLETE: Final = 3
"""Exit code for work that is done except for listed items (quotas that an import skipped)."""


class CommandError(click.ClickException):
    """Raised if a command cannot do its work: prints one line on stderr; exit code 2."""

    exit_code = USAGE

    def show(self, file: IO[str] | None = None) -> None:
        """Print the message as one line, by default on stderr."""
        click.echo(f"weir: {self.format_message()}", file=file, err=file is None)


class StoppedError(CommandError):
    """Raised if Ctrl-C stopped a command: prints one line on stderr; exit code 130."""

    exit_code = 128 + signal.SIGINT


class NothingThereError(CommandError):
    """Raised if the requested object is missing: prints one line on stderr; exit code 1."""

    exit_code = FAILED


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run a command line and exit; `name` is the program's name in messages."""
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
    if isinstance(error, click.NoSuchOption) and context is not None:
        from weir.cli.settings.options import set_instead  # the settings take longer than a command's help

        advice = set_instead(error.option_name, context.command)
        if advice:
            return f": use {advice}"
    return f": see {context.command_path} --help" if context is not None else ""
