"""Parts of the command line common to all benchmarks: progress, choices from lists, errors and interrupts."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

import click

INTERRUPTED: Final = 130
T = TypeVar("T")


def say(step: str) -> None:
    """Print the description of a step that begins to standard error."""
    click.echo(step, err=True)


def chosen(names: str, among: Sequence[T], option: str, name_of: Callable[[T], str] = str) -> list[T]:
    """Return the elements of `among` whose names are in `names` (separated by commas), in the order of
    `among`; all elements if `names` is empty. Raises click.BadParameter for an unknown name.
    """
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    known = [name_of(one) for one in among]
    if unknown := wanted - set(known):
        raise click.BadParameter(
            f"{', '.join(sorted(unknown))}; known: {', '.join(known)}", param_hint=option
        )
    return [one for one, name in zip(among, known, strict=True) if not wanted or name in wanted]


def run(command: click.Command, name: str, failures: tuple[type[Exception], ...]) -> None:
    """Run a command, and exit the process. SIGTERM interrupts the command like Ctrl-C, so that it can clean
    up. Exceptions of the types `failures` are printed as one line.
    """
    signal.signal(signal.SIGTERM, _leave)
    try:
        command.main(prog_name=name, standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted; everything was ended and deleted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except failures as error:
        sys.exit(f"error: {error}")


def _leave(*_: object) -> NoReturn:
    raise KeyboardInterrupt
