"""Print a reading: a table for `--once`, and JSON."""

from __future__ import annotations

from typing import Final

import click

from weir.cli.quotas.show import columns, echo_json
from weir.cli.top.cells import COLUMNS, hidden, problems, rows, summary
from weir.cli.top.readings import TopReading, View, Wanted


def echo_records(reading: TopReading) -> None:
    """Print the records of a reading as one JSON object."""
    echo_json(reading)


SHADOW: Final = "shadow quotas, which throttle nobody: the throttle times are those of enforced quotas"


def echo_table(wanted: Wanted, reading: TopReading) -> None:
    """Print the status, all problems, and a table. Names are not cut, so that they can be copied."""
    click.echo(summary(reading.status))
    for line in problems(reading.status, most=len(reading.status.problems)):
        click.secho(line, fg="red")
    click.echo()
    view, found = wanted.view, rows(reading)
    if view is View.ENTITIES and reading.is_shadow(wanted):
        click.echo(SHADOW)
    if not found:
        click.echo(f"no {view.value}")
        return
    titles = tuple(column.title for column in COLUMNS[view])
    heading, *lines = columns([titles, *(row.cells for row in found)])
    click.secho(heading, bold=True)
    for row, line in zip(found, lines, strict=True):
        click.secho(line, fg=(None, "yellow", "red")[row.level])
    if count := hidden(reading):
        click.echo(f"and {count} more: use --filter")
