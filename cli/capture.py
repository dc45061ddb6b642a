"""`weir capture`: record what clients and brokers send."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Final

import click
import trio
from rich.console import Console

from weir.cli.capture_client import CLIENT, CaptureCommand, CapturedClient, with_free_ports
from weir.cli.capture_pcap import capture_pcap
from weir.cli.exits import INCOMPLETE, CommandError
from weir.cli.progress import Progress
from weir.cli.quantity import Quantity
from weir.cli.settings.options import setting_options
from weir.conformance.capture import CaptureError, Run
from weir.conformance.capture.recorder import QUEUE_BYTES_MAX, Recorder
from weir.conformance.events import Side
from weir.proxy import logs
from weir.proxy.build import VERSION
from weir.proxy.config import config
from weir.proxy.tapped_run import RELAY_ONLY, run_tapped

EXAMPLES = """\b
Examples:
  weir capture --upstream kafka-1:9092 --listen 127.0.0.1:19092 --output session.weircap
  weir capture --upstream kafka-1:9092 --output session.weircap --blank-records --for 60
  weir capture --upstream kafka-1:9092 -- pytest tests
  weir capture --upstream kafka-1:9092 -- kcat -b {bootstrap} -L
  weir capture --pcap traffic.pcap --broker-port 9092 --output session.weircap

\b
Exit codes with a CLIENT:
  0  the client ended with 0, and there are no findings
  1  there are findings: errors or warnings
  2  nothing was captured, or not all of it
  3  no findings, but the client did not end with 0
"""
SAY_S: Final = 0.5
"""Time (s) between two changes of the progress line."""
PREFIXES: Final = (
    "upstream",
    "listen",
    "advertised_host",
    "broker_ports",
    "tls_",
    "sni_domain",
    "log_",
)


@click.command(cls=CaptureCommand, epilog=EXAMPLES, options_metavar="[OPTIONS] [-- CLIENT [ARG]...]")
@click.option(
    "--output",
    "out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The capture; Weir appends to an existing one. With CLIENT: none is kept without this option.",
)
@click.option("--blank-records", is_flag=True, help="Write zeros for the payloads of records; sizes stay.")
@click.option(
    "--with-credentials", is_flag=True, help="Record passwords and tokens, too. Keep the file secret."
)
@click.option("--for", "for_s", type=Quantity("s", 0), metavar="DURATION", help="Stop after this time.")
@click.option(
    "--queue-bytes",
    type=Quantity("bytes", 1, whole=True),
    default=QUEUE_BYTES_MAX,
    show_default=True,
    help="Bytes that may wait to be written; more are dropped and counted.",
)
@click.option(
    "--pcap",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Make the capture from a pcap or pcapng file, and relay nothing.",
)
@click.option(
    "--broker-port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    help="With --pcap: a port of brokers, repeatable; default: those that connections were opened to.",
)
@setting_options("upstream", "listen", prefixes=PREFIXES)
@click.pass_context
def capture(
    context: click.Context,
    /,
    out: Path | None,
    blank_records: bool,
    with_credentials: bool,
    for_s: float | None,
    queue_bytes: int,
    pcap: Path | None,
    ports: tuple[int, ...],
    **options: object,
) -> None:
    """Relay without quotas, and record both directions, until SIGTERM, SIGINT or SIGHUP, or CLIENT's end.

    Traffic is never slowed: bytes that the disk cannot take are dropped, counted, and noted in the capture.
    Credentials are replaced by filler of the same length.

    CLIENT is a program that is run, with free ports unless --listen names one. It gets the bootstrap address
    in place of {bootstrap} in its arguments, and in the variable KAFKA_BOOTSTRAP_SERVERS. Then `weir verify`
    checks the capture, with the options in its variables, such as WEIR_VERIFY_JUNIT.

    With --pcap, the exit code is 3 if the file is cut or damaged.
    """
    program: list[str] = context.meta.get(CLIENT, [])
    if out is None and (pcap is not None or not program):
        raise click.UsageError("Missing option '--output'.", context)
    if pcap is not None and program:
        raise click.UsageError("either --pcap or a CLIENT: --pcap relays nothing", context)
    if pcap is not None and out is not None:
        capture_pcap(pcap, out, ports, blank_records=blank_records, with_credentials=with_credentials)
        return
    with ExitStack() as stack:
        if out is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory("weir-capture"))) / "client.weircap"
        try:
            loaded = config.load(None, {**with_free_ports(options, program), **RELAY_ONLY})
        except config.ConfigError as error:
            raise CommandError(str(error)) from None
        client = CapturedClient(program, loaded.listen, for_s) if program else None
        with logs.in_background():
            logs.configure(loaded.settings.log_level)
            recorder = _recorder(out, loaded.settings.upstream, blank_records, with_credentials, queue_bytes)
            _record(recorder, loaded, client, for_s)
        click.echo(summary(recorder, out), err=True)
        if recorder.error:
            raise CommandError(f"{recorder.error}: the capture lacks all that came after")
        if client is not None:
            _check(context, out, client)


def _record(
    recorder: Recorder, loaded: config.Config, client: CapturedClient | None, for_s: float | None
) -> None:
    """Relay and record until the client has ended, or `for_s` seconds have passed. Raises CommandError."""
    until = partial(trio.sleep, float("inf") if for_s is None else for_s) if client is None else client.run
    try:
        with _Shown(recorder) if client is None else nullcontext():
            run_tapped(loaded, recorder.open, until)
    except config.ConfigError as error:
        raise CommandError(str(error)) from None
    finally:
        recorder.close()


def _check(context: click.Context, out: Path, client: CapturedClient) -> None:
    """Verify the capture of a client, and raise Exit if it has findings or the client failed."""
    from weir.cli.verify import verify  # a capture without a client does not need it

    if client.complaint:
        click.echo(f"weir: {client.complaint}", err=True)
    with verify.make_context("verify", [str(out)], context.find_root()) as checking:
        verify.invoke(checking)
    if client.complaint:
        raise click.exceptions.Exit(INCOMPLETE)


def _recorder(
    out: Path, upstream: str, blank_records: bool, with_credentials: bool, queue_bytes: int
) -> Recorder:
    """Open the capture. Raises CommandError."""
    run = Run(
        time_ns=time.time_ns(),
        source=upstream,
        tool=f"weir {VERSION}",
        redacted=not with_credentials,
        blanked=blank_records,
    )
    try:
        recorder = Recorder(out, run, queue_bytes_max=queue_bytes)
    except CaptureError as error:
        raise CommandError(str(error)) from None
    if recorder.repaired:
        click.echo(f"weir: {recorder.repaired}", err=True)
    return recorder


def summary(recorder: Recorder, out: Path) -> str:
    """Return the text that the command prints at its end."""
    sent = recorder.seen_bytes
    text = (
        f"{out}: {recorder.connections} connections, {sent[Side.CLIENT]} bytes of clients, "
        f"{sent[Side.SERVER]} bytes of brokers, {recorder.dropped_bytes} bytes dropped"
    )
    if recorder.filled_frames:
        text += f"\n{recorder.filled_frames} frames could not be read, and were replaced behind their heads"
    return text


class _Shown:
    """Shows a recorder's counters on a terminal, within a `with` block."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._progress = Progress("recording", Console(stderr=True))
        self._ended = Flag()
        self._thread = Thread(target=self._say, daemon=True)

    def __enter__(self) -> None:
        self._progress.__enter__()
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._progress.__exit__(None, None, None)

    def _say(self) -> None:
        while not self._ended.wait(SAY_S):
            recorder = self._recorder
            self._progress.say(
                f"{recorder.connections} connections, {sum(recorder.seen_bytes.values()) / 1e6:.1f} MB, "
                f"{recorder.dropped_bytes} bytes dropped"
            )
