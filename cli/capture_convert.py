"""`weir capture convert`: captures to JSON lines, and pcap files to captures."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import click
import msgspec

from weir.cli import output_file
from weir.cli.exits import INCOMPLETE, CommandError
from weir.conformance.capture import CaptureError, CaptureReader, CaptureWriter, Run
from weir.conformance.capture.pcap import read_pcap
from weir.conformance.capture.redaction import Redaction
from weir.conformance.events import Event
from weir.proxy.build import VERSION

EXAMPLES = """\b
Examples:
  weir capture convert session.weircap --to jsonl | jq 'select(.api == "Fetch")'
  weir capture convert --from pcap traffic.pcap --broker-port 9092 --output session.weircap
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--to", "to", type=click.Choice(["jsonl"]), help="Decode a capture: a line of JSON per frame.")
@click.option(
    "--from", "origin", type=click.Choice(["pcap"]), help="Make a capture from a pcap or pcapng file."
)
@click.option(
    "--output",
    "out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The result; with --to default stdout.",
)
@click.option("--force", is_flag=True, help="Replace an existing file of JSON lines.")
@click.option(
    "--broker-port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    help="With --from pcap: a port of brokers, repeatable; default: those that connections were opened to.",
)
@click.option(
    "--blank-records", is_flag=True, help="With --from pcap: write zeros for the payloads of records."
)
@click.option("--with-credentials", is_flag=True, help="With --from pcap: keep passwords and tokens.")
def convert(
    file: Path,
    to: str | None,
    origin: str | None,
    out: Path | None,
    force: bool,
    ports: tuple[int, ...],
    blank_records: bool,
    with_credentials: bool,
) -> None:
    """Convert a capture to JSON lines, or a pcap file to a capture. FILE is - for stdin, with --to.

    Exit code 3 if the capture is damaged: the lines are those of the events before the damage.
    """
    if (to is None) == (origin is None):
        raise click.UsageError("Choose one: --to jsonl, or --from pcap.", click.get_current_context())
    try:
        if to is not None:
            _to_json_lines(file, out, force=force)
        else:
            _from_pcap(file, out, ports, blank_records=blank_records, with_credentials=with_credentials)
    except CaptureError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename or file}: {error.strerror}") from None


def _to_json_lines(file: Path, out: Path | None, *, force: bool) -> None:
    from weir.conformance.capture.json_lines import json_lines  # it imports the codec

    damages: list[str] = []
    reader = CaptureReader("-" if str(file) == "-" else file, damages.append)
    lines = (line.decode() + "\n" for line in json_lines(iter(reader)))
    if out is not None:
        output_file.write_lines(out, lines, force=force)
    else:
        try:
            for line in lines:
                sys.stdout.write(line)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as head, wants no more
            sys.stderr.close()
            sys.exit(0)
    _tell(damages)


def _from_pcap(
    file: Path, out: Path | None, ports: tuple[int, ...], *, blank_records: bool, with_credentials: bool
) -> None:
    if out is None:
        raise click.UsageError("--from pcap needs --output.", click.get_current_context())
    redaction = Redaction(credentials=not with_credentials, records=blank_records)
    damages: list[str] = []
    events = read_pcap(file, ports, damages.append)
    first = next(events, None)
    if first is None:
        raise CommandError(
            damages[0]
            if damages
            else f"{file} has no TCP connections of brokers: name their ports with --broker-port"
        )
    run = Run(
        time_ns=first.time_ns,
        source=file.name,
        tool=f"weir {VERSION}",
        redacted=not with_credentials,
        blanked=blank_records,
    )
    with CaptureWriter(out, run) as writer:
        if writer.repaired:
            click.echo(f"weir: {writer.repaired}", err=True)
        for event in _redacted(_numbered(chain([first], events), writer.next_connection), redaction):
            writer.write(event)
        text = f"{out}: {writer.events} events"
    click.echo(text, err=True)
    _tell(damages)


def _tell(damages: list[str]) -> None:
    """Print what was damaged, and exit with INCOMPLETE if anything was."""
    for damage in damages:
        click.echo(f"weir: {damage}", err=True)
    if damages:
        sys.exit(INCOMPLETE)


def _numbered(events: Iterable[Event], first: int) -> Iterator[Event]:
    """Return the events with connections that are numbered from `first`."""
    for event in events:
        yield msgspec.structs.replace(event, connection=event.connection + first)


def _redacted(events: Iterable[Event], redaction: Redaction) -> Iterator[Event]:
    """Return the events without credentials, or payloads of records, if the redaction replaces these."""
    if not any(redaction.replaces):
        yield from events
        return
    time_ns = 0
    for event in events:
        time_ns = event.time_ns
        yield from redaction.feed(event)
    yield from redaction.finish(time_ns)
