"""`weir capture --pcap`: a capture of the connections in a pcap or pcapng file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import click
import msgspec

from weir.cli.exits import INCOMPLETE, CommandError
from weir.conformance.capture import CaptureError, CaptureWriter, Run
from weir.conformance.capture.pcap import read_pcap
from weir.conformance.capture.redaction import Redaction
from weir.conformance.events import Event
from weir.proxy.build import VERSION


def capture_pcap(
    file: Path, out: Path, ports: Sequence[int], *, blank_records: bool, with_credentials: bool
) -> None:
    """Write the connections of a pcap file to a capture; `ports` are those of brokers, empty for the ports to
    which connections were opened. Exit with `INCOMPLETE` if the file is damaged. Raises CommandError.
    """
    try:
        damages = _write(file, out, ports, blank_records=blank_records, with_credentials=with_credentials)
    except CaptureError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename or file}: {error.strerror}") from None
    end_with(damages)


def end_with(damages: Sequence[str]) -> None:
    """Print the damages of a file, and exit with `INCOMPLETE` if there are any."""
    for damage in damages:
        click.echo(f"weir: {damage}", err=True)
    if damages:
        sys.exit(INCOMPLETE)


def _write(
    file: Path, out: Path, ports: Sequence[int], *, blank_records: bool, with_credentials: bool
) -> list[str]:
    """Write the capture; return what is damaged in `file`."""
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
    return damages


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
