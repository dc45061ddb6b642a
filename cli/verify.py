"""`weir verify`: checks captures against the rules of Kafka's protocol."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from weir.cli.exits import FAILED, CommandError
from weir.conformance.capture import CaptureError, CaptureReader
from weir.conformance.report import Groups, junit, parse_report
from weir.conformance.verify import R, Verifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.conformance.report import Group

EXAMPLES: Final = """\b
Examples:
  weir verify capture.weircap
  weir verify capture.weircap --without batch-timestamps --junit junit.xml
  weir verify capture.weircap --json > known.json
  weir verify capture.weircap --baseline known.json
"""
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which serves as a baseline too.")
@click.option("--junit", "junit_file", type=_FILE, metavar="FILE", help="Write JUnit XML: a test per rule.")
@click.option(
    "--without",
    multiple=True,
    type=click.Choice([rule.value for rule in R]),
    metavar="RULE",
    help="Switch a rule off. May be repeated.",
)
@click.option(
    "--baseline", type=_FILE, metavar="FILE", help="Fail only for findings that this output of --json lacks."
)
def verify(
    files: Sequence[str],
    as_json: bool,
    junit_file: Path | None,
    without: Sequence[str],
    baseline: Path | None,
) -> None:
    """Check that the clients and servers of captures keep to Kafka's protocol.

    FILE is a capture of `weir capture`; - reads standard input. Exit code 1: errors or warnings were found.
    """
    groups = Groups(_known(baseline))
    for file in files:
        _verify(file, without, groups)
    found = groups.sorted()
    if junit_file is not None:
        junit_file.write_bytes(junit(found, without))
    click.echo(groups.report().decode() if as_json else _summary(found))
    if any(group.fails for group in found):
        raise click.exceptions.Exit(FAILED)


def _known(baseline: Path | None) -> list[tuple[str, str, int, str]]:
    try:
        return [] if baseline is None else parse_report(baseline.read_bytes())
    except OSError as error:
        raise CommandError(f"{baseline}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise CommandError(f"{baseline}: not an output of weir verify --json: {error}") from None


def _verify(file: str, without: Sequence[str], groups: Groups) -> None:
    """Add the findings of one capture. Blanked records have no right checksum, so it is not compared."""
    verifier = Verifier(without)
    reader = CaptureReader(file, on_damage=lambda text: click.echo(f"weir: {text}", err=True))
    try:
        for event in reader:
            for finding in verifier.take(event):
                if not (reader.blanked and finding.rule is R.BATCH_CRC):
                    groups.add(finding)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except CaptureError as error:
        raise CommandError(str(error)) from None


def _summary(found: Sequence[Group]) -> str:
    lines = [_line(group) for group in found]
    totals: dict[str, int] = {}
    for group in found:
        totals[group.first.severity.value] = totals.get(group.first.severity.value, 0) + group.count
    counted = ", ".join(f"{count} {severity}" for severity, count in totals.items())
    return "\n".join([*lines, counted or "no findings"])


def _line(group: Group) -> str:
    one = group.first
    where = " ".join(filter(None, (f"{one.api} v{one.version}" if one.api else "", one.path)))
    detail = f"expected {one.expected}, found {one.found}" if one.expected else one.found
    place = (
        f"connection {one.connection}, correlation id {one.correlation_id}, byte {one.offset}: {one.context}"
    )
    known = "" if group.new else " (in the baseline)"
    return (
        f"{one.severity.value} {one.rule.value}, {group.count} times{known}: {where}\n"
        f"    {one.message}\n    {detail}\n    first: {place}"
    )
