"""Exit codes of the `weir` command, stable across releases."""

from __future__ import annotations

from typing import IO, Final

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


class NothingThereError(CommandError):
    """What was asked for is not there: one line on stderr, exit code 1."""

    exit_code = FAILED
