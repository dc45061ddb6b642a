"""Show the report of `weir verify`: a table with colours on a terminal, plain text in a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from weir.conformance.report import counted, size, spoken, visible
from weir.conformance.verify import Severity

if TYPE_CHECKING:
    from rich.text import Text

    from weir.conformance.report import Checked, FindingGroup, VerifyReport

STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def show(report: VerifyReport) -> None:
    """Print a report that has `checked`."""
    if sys.stdout.isatty():
        _draw(report)
    else:
        click.echo("\n".join([*map(_plain, report.findings), summary(report)]))


def summary(report: VerifyReport) -> str:
    """Return the last line: the traffic that was checked, and the numbers of findings."""
    assert report.checked is not None
    return f"{_checked(report.checked)}: {spoken(report.findings, report.checked)}"


def _checked(checked: Checked) -> str:
    frames, connections = counted(checked.frames, "frame"), counted(checked.connections, "connection")
    return f"{frames} of {connections} checked, {size(checked.bytes)}"


def _where(group: FindingGroup) -> str:
    one = group.first
    return " ".join(filter(None, (f"{one.api} v{one.version}" if one.api else "", visible(one.path))))


def _detail(group: FindingGroup) -> str:
    one = group.first
    found = visible(one.found)
    return f"expected {visible(one.expected)}, found {found}" if one.expected else found


def _first(group: FindingGroup) -> str:
    one = group.first
    capture = f"{visible(group.capture)}, " if group.capture else ""
    place = f", byte {one.offset}: {one.context}" if one.offset >= 0 else ""
    return f"first: {capture}connection {one.connection}, correlation id {one.correlation_id}{place}"


def _plain(group: FindingGroup) -> str:
    one = group.first
    known = "" if group.new else " (in the baseline)"
    return (
        f"{one.severity.value} {one.rule.value}, {counted(group.count, 'time')}{known}: {_where(group)}\n"
        f"    {visible(one.message)}\n    {_detail(group)}\n    {_first(group)}"
    )


def _draw(report: VerifyReport) -> None:
    from rich.console import Console  # `weir run` does not need it
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if report.findings:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 1, 0))
        for heading in ("severity", "rule", "times", "finding"):
            table.add_column(
                heading,
                justify="right" if heading == "times" else "left",
                no_wrap=heading != "finding",
                overflow="fold",
            )
        for group in report.findings:
            style = STYLES[group.first.severity] if group.new else "dim"
            severity = group.first.severity.value
            table.add_row(Text(severity, style), group.first.rule.value, f"{group.count:,}", _finding(group))
        console.print(table)
    fails = any(group.fails for group in report.findings)
    empty = report.checked is not None and not report.checked.frames
    console.print(Text(summary(report), "bold red" if fails else "yellow" if empty else "green"))


def _finding(group: FindingGroup) -> Text:
    from rich.text import Text

    text = Text(_where(group), "bold" if group.new else "dim")
    text.append(f"\n{visible(group.first.message)}", "not bold")
    for line in (_detail(group), _first(group), "" if group.new else "in the baseline"):
        if line:
            text.append(f"\n{line}", "not bold dim")
    return text
