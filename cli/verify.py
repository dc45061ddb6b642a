"""`weir verify`: checks captures against the rules of Kafka's protocol."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from weir.cli.capture_pcap import end_with
from weir.cli.exits import FAILED, USAGE, CommandError
from weir.cli.progress import Progress
from weir.cli.report_files import check_report_files, read_report, write_report
from weir.cli.verify_show import show
from weir.conformance.capture import CaptureError, CaptureReader
from weir.conformance.report import (
    Groups,
    counted,
    junit,
    parse_report,
    render,
    report_json,
    sarif,
    size,
    verify_page,
)
from weir.conformance.verify import R, Traffic, Verifier

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES: Final = """\b
Examples:
  weir verify capture.weircap
  weir verify capture.weircap --html report.html
  weir verify capture.weircap --without batch-timestamps --junit junit.xml
  weir verify capture.weircap --json > known.json
  weir verify capture.weircap --baseline known.json
  weir verify capture.weircap --frames | jq 'select(.api == "Fetch")'
"""
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_EVENTS_PER_UPDATE: Final = 1024
"""Number of events after which the progress line changes."""


@click.command(epilog=EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="WEIR_VERIFY_JSON",
    help="Print JSON, which serves as a baseline too.",
)
@click.option(
    "--html", "html_file", type=_FILE, metavar="FILE", envvar="WEIR_VERIFY_HTML", help="Write an HTML page."
)
@click.option(
    "--junit",
    "junit_file",
    type=_FILE,
    metavar="FILE",
    envvar="WEIR_VERIFY_JUNIT",
    help="Write JUnit XML: a test per rule.",
)
@click.option(
    "--sarif",
    "sarif_file",
    type=_FILE,
    metavar="FILE",
    envvar="WEIR_VERIFY_SARIF",
    help="Write SARIF 2.1.0, for code scanning.",
)
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
@click.option(
    "--frames", "as_frames", is_flag=True, help="Print each frame, decoded, as a line of JSON; check nothing."
)
def verify(
    files: Sequence[str],
    as_json: bool,
    html_file: Path | None,
    junit_file: Path | None,
    sarif_file: Path | None,
    without: Sequence[str],
    baseline: Path | None,
    as_frames: bool,
) -> None:
    """Check that the clients and servers of captures keep to Kafka's protocol.

    FILE is a capture of `weir capture`; - reads standard input. Exit code 1: errors or warnings were found;
    2: otherwise, if a capture has no frame, or is no capture; 3 with --frames: a capture is damaged, and the
    lines are those before the damage.
    """
    if as_frames:
        if html_file or junit_file or sarif_file or without or baseline:
            raise click.UsageError("--frames checks nothing, so it takes no options about findings")
        _print_frames(files)
        return
    check_report_files(html_file, junit_file, sarif_file)
    known = [] if baseline is None else read_report(baseline, parse_report, "weir verify --json")
    groups, traffic = Groups(known), Traffic()
    empty = [file for file in files if not _verify(file, without, groups, traffic)]
    report = groups.report(files, traffic)
    if junit_file is not None:
        write_report(junit_file, junit(report.findings, without))
    if sarif_file is not None:
        write_report(sarif_file, sarif(report.findings))
    if html_file is not None:
        write_report(html_file, render(verify_page(report)))
    if as_json:
        click.echo(report_json(report).decode())
    else:
        show(report)
    for file in empty:
        click.echo(f"weir: {file}: no frame in this capture, so nothing was checked", err=True)
    if any(group.fails for group in report.findings):
        raise click.exceptions.Exit(FAILED)
    if empty:
        raise click.exceptions.Exit(USAGE)


def _print_frames(files: Sequence[str]) -> None:
    """Print the frames and other events of captures. Exit with INCOMPLETE if a capture is damaged."""
    from weir.conformance.capture.json_lines import json_lines  # the checks do not need it

    damages: list[str] = []
    try:
        for file in files:
            for line in json_lines(iter(CaptureReader(file, damages.append))):
                sys.stdout.write(line.decode() + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, wants no more
        sys.stderr.close()
        sys.exit(0)
    except (OSError, CaptureError) as error:
        raise CommandError(
            f"{file}: {error.strerror}" if isinstance(error, OSError) else str(error)
        ) from None
    end_with(damages)


def _verify(file: str, without: Sequence[str], groups: Groups, traffic: Traffic) -> bool:
    """Add the findings of one capture. Return True if it has a frame."""
    reader = CaptureReader(file, on_damage=lambda text: click.echo(f"weir: {text}", err=True))
    before = traffic.frames
    try:
        with Progress(f"checking {reader.name}") as progress:
            _check(reader, Verifier(without, traffic), groups, progress)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except CaptureError as error:
        raise CommandError(str(error)) from None
    return traffic.frames > before


def _check(reader: CaptureReader, verifier: Verifier, groups: Groups, progress: Progress) -> None:
    """Take all events. Blanked records have no right checksum, so it is not compared."""
    found = 0
    for number, event in enumerate(reader):
        for finding in verifier.take(event):
            if not (reader.blanked and finding.rule is R.BATCH_CRC):
                groups.add(finding, reader.name)
                found += 1
        if not number % _EVENTS_PER_UPDATE:
            traffic = verifier.traffic
            done = f"{counted(traffic.frames, 'frame')}, {size(traffic.bytes)}"
            progress.say(f"checking {reader.name}: {done}, {counted(found, 'finding')}")
