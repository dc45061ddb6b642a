"""`python -m tests.attacks [NAME…] [--seconds N]`: attack a Weir of its own, and print a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich import box
from rich.console import Console
from rich.table import Table

from tests.attacks.attacks import ATTACKS, BY_NAME
from tests.attacks.harness import run
from weir.cli.progress import Progress

if TYPE_CHECKING:
    from tests.attacks.harness import Result

PIPE_WIDTH: Final = 160
"""Columns of a table that no terminal shows."""
COLUMNS: Final = (
    "attack",
    "connections",
    "quiet ms p50/p99/max",
    "attacked ms p50/p99/max",
    "failed",
    "longest turn ms",
    "turns > 5 ms",
    "turns",
    "grown MB",
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(list(BY_NAME)), metavar="[NAME]...")
@click.option("--seconds", default=5.0, show_default=True, help="Time of each of the two measurements.")
@click.option("--stacks", is_flag=True, help="Print where each longest turn was.")
def main(names: tuple[str, ...], seconds: float, stacks: bool) -> None:
    """Measure a polite client without and beside attackers; without NAME, beside each kind of attacker.

    A turn's length is its CPU, which other processes do not change.
    """
    table = Table(*COLUMNS, box=box.SIMPLE_HEAD if sys.stdout.isatty() else box.ASCII2)
    results = []
    for name in names or [attack.name for attack in ATTACKS]:
        with Progress(f"{name}: {BY_NAME[name].about}"):
            results.append(run(BY_NAME[name], seconds, seconds))
        if not sys.stderr.isatty():
            click.echo(f"{name}: done", err=True)
        table.add_row(*row(results[-1]))
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table)
    for result in results if stacks else ():
        console.print(f"{result.attack.name}:", _shortened(result.turns.stack), sep="\n", markup=False)


def row(result: Result) -> tuple[str, ...]:
    times = (result.quiet, result.attacked)
    shown = ["/".join(f"{each.ms(share):.1f}" for share in (0.5, 0.99, 1)) for each in times]
    turns = result.turns
    return (
        result.attack.name,
        str(result.attack.connections),
        *shown,
        str(result.quiet.failed + result.attacked.failed),
        f"{turns.longest_ns / 1e6:.1f}",
        str(turns.long),
        str(turns.number),
        f"{result.grown_bytes / 1e6:.0f}",
    )


def _shortened(stack: str) -> str:
    return stack.replace(f"{Path.cwd()}/", "")


if __name__ == "__main__":
    main()
