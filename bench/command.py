"""Parts of the command line common to all benchmarks: progress, choices from lists, errors and interrupts."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

INTERRUPTED: Final = 130
T = TypeVar("T")


@contextmanager
def progress(total: int | None = None) -> Iterator[Callable[[str], None]]:
    """Show progress on standard error: a progress bar on a terminal, else one line per step. Yields a
    function to call with the description of each step that begins. `total` is the number of steps, None if
    unknown.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("starting a broker", total=total)

        def say(what: str) -> None:
            shown.update(task, description=what, advance=1)
            if not console.is_terminal:
                click.echo(what, err=True)

        yield say


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
