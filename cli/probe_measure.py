"""`weir probe --profile quotas --measure`: measures how exactly quotas hold, and shows datasheets."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click
import msgspec

from weir.cli.exits import CommandError
from weir.cli.progress import Bar
from weir.cli.report_files import read_report, write_report
from weir.conformance.probe.link import ConversationError
from weir.conformance.probe.measure import measurement
from weir.conformance.probe.measure.sheet import parse_sheet
from weir.conformance.probe.quotas.profile import bare_stage
from weir.conformance.probe.scratch import UnusableError
from weir.conformance.report import MESSAGE_MAX, rows, sheet_page, visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weir.conformance.probe.link import ProbeTarget
    from weir.conformance.probe.login import Login
    from weir.conformance.probe.measure.sheet import Datasheet
    from weir.conformance.probe.quotas.jobs import ClientQuota

PERCENT: Final = 100


def quotas_to_measure(target: ProbeTarget, login: Login | None, run: str) -> list[ClientQuota]:
    """Return the quotas that an operator sets before a measurement. Raises CommandError."""
    try:
        return measurement.Measurement(bare_stage(target, login, run), alters=False).quotas
    except ConversationError as error:
        raise CommandError(visible(str(error), MESSAGE_MAX)) from None


def measure(target: ProbeTarget, login: Login | None, quotas_set: str | None) -> Datasheet:
    """Measure a target, with a progress bar. Raises CommandError."""
    with Bar() as bar:

        def say(share: float) -> None:
            bar.say(int(share * PERCENT), PERCENT, "measuring")

        try:
            return measurement.measure(target, login, quotas_set, say)
        except (ConversationError, UnusableError) as error:
            place, text = f"{target.host}:{target.port}", str(error)
            text = text if text.startswith(place) else f"{place}: {text}"
            raise CommandError(visible(text, MESSAGE_MAX)) from None


def read_sheet(file: Path) -> Datasheet:
    """Return the datasheet of an earlier run, named like its file. Raises CommandError."""
    sheet = read_report(file, parse_sheet, "weir probe --measure --json")
    return msgspec.structs.replace(sheet, target=file.stem)


def show_sheets(sheets: Sequence[Datasheet], html_file: Path | None, *, as_json: bool) -> None:
    """Print the last sheet as JSON, or all beside each other; write the page. Raises CommandError."""
    if html_file is not None:
        write_report(html_file, sheet_page(sheets))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(sheets[-1]), indent=1).decode())
        return
    lines = [("", [visible(sheet.target) for sheet in sheets])]
    lines += [(row.name, row.cells) for row in rows(sheets)]
    first = max(len(name) for name, cells in lines if cells)
    width = max(len(cell) for _, cells in lines for cell in cells)
    for name, cells in lines:
        text = "  ".join([name.ljust(first), *(cell.rjust(width) for cell in cells)]) if cells else name
        click.echo(click.style(text.rstrip(), bold=not cells) if sys.stdout.isatty() else text.rstrip())
    for sheet in sheets:
        for note in sheet.notes:
            click.echo(f"note: {visible(sheet.target)}: {visible(note, MESSAGE_MAX)}")
