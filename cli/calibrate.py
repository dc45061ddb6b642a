"""`weir calibrate`: measure request costs of the user's own broker, and write them to a file."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import click
import trio

from weir.calibration.broker_connection import BrokerConnection, CalibrationError
from weir.calibration.cases import COEFFICIENTS, NAMES
from weir.calibration.frames import NodeApiVersions, kafka_name
from weir.calibration.jmx import JmxProbe, scraper
from weir.calibration.probe import QuotaProbe
from weir.calibration.run import (
    AT_MOST_S,
    ROUNDS,
    SHARE,
    Calibration,
    CalibrationOptions,
    CalibrationPlan,
    CalibrationResults,
    Probe,
)
from weir.cli.calibrate_show import case_lines, plan_lines, report, show, summary
from weir.cli.exits import DONE, FAILED, INCOMPLETE, CommandError
from weir.cli.output_file import write
from weir.cli.progress import Bar
from weir.cli.quantity import Quantity
from weir.cli.quotas.show import clean, echo_json
from weir.cli.settings.options import broker_options, config_file_option, one_broker
from weir.protocol.api import ApiKey
from weir.proxy.addresses import Address
from weir.proxy.config import config
from weir.proxy.config.config import Config, ConfigError
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.quotas.costs.cost_file import render
from weir.quotas.costs.cost_findings import CostFindings, Readings
from weir.quotas.costs.cost_findings import findings as fit_findings

ANONYMOUS: Final = "ANONYMOUS"
"""Principal that Kafka gives to clients without authentication."""
LEFT_SHOWN: Final = 10

EXAMPLES: Final = """\b
Examples:
  weir calibrate --upstream kafka-1:9092 --dry-run
  weir calibrate --upstream kafka-1:9092 --output costs.toml
  weir calibrate --config weir.toml --upstream kafka-1:9093 --apis Produce,Fetch,Metadata --percent 10
  weir calibrate --upstream old-kafka:9092 --jmx-prometheus http://old-kafka:9404/metrics --output costs.toml

\b
Then, in weir.toml:
  request_costs = "costs.toml"

\b
Exit codes:
  0  measured            1  this broker cannot be measured; the reason is on stderr
  2  wrong options, or no broker there
  3  measured, but something of the calibrator's could not be removed; it is listed on stderr
  130, 143  interrupted (SIGINT, SIGTERM); everything was put back
"""


class Wish(NamedTuple):
    """Options of `weir calibrate`, as the command line gives them."""

    options: CalibrationOptions
    jmx_url: str | None
    output: Path | None
    force: bool
    dry_run: bool
    yes: bool
    as_json: bool
    timeout_s: float

    @property
    def method(self) -> str:
        """Text that says by which means costs are read: the broker's request quota, or its exporter's metrics
        (JMX).
        """
        return "its exporter's metrics (JMX)" if self.jmx_url else "its own request quota"


@click.command(epilog=EXAMPLES)
@broker_options("The broker to measure.")
@config_file_option(
    "Weir's configuration: its upstream, how Weir reaches that, and the costs to compare with."
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File to write the costs to. [default: none]",
)
@click.option("--force", is_flag=True, help="Replace the file of --output.")
@click.option(
    "--apis",
    metavar="NAME[,...]",
    help=f"Measure only these APIs. [default: all of {', '.join(NAMES)}, as the broker has them]",
)
@click.option(
    "--percent",
    type=click.FloatRange(0, 100, min_open=True),
    default=SHARE * 100,
    show_default=True,
    help="Largest average load, in percent of one of the broker's threads.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=ROUNDS,
    show_default=True,
    help="Number of measurements per request; the result is their median.",
)
@click.option(
    "--for",
    "at_most_s",
    metavar="DURATION",
    type=Quantity("s", 10),
    default=AT_MOST_S,
    show_default=True,
    help="Start no new rounds after this time.",
)
@click.option(
    "--jmx-prometheus",
    "jmx_url",
    metavar="URL",
    help="Measure by a JMX exporter's metrics: for brokers before 2.6, or without the right to alter quotas.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask whether to load the broker.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--timeout-s",
    type=Quantity("s", 0, above=True),
    default=10,
    show_default=True,
    help="Time limit for connecting, for logging in, and for each answer.",
)
def calibrate(
    config_file: Path | None,
    output: Path | None,
    force: bool,
    apis: str | None,
    percent: float,
    rounds: int,
    at_most_s: float,
    jmx_url: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    timeout_s: float,
    **settings: object,
) -> None:
    """Measure what requests cost a broker, for request quotas (KIP-124).

    It LOADS THE BROKER for about a minute, within --percent, with requests under client-ids of its own
    (weir-calibrate-*) that write to and read from a topic of its own. Small request quotas of these
    client-ids make the broker report the time it has spent. Everything is restored afterwards, also after
    Ctrl-C.
    """
    options = CalibrationOptions(_apis(apis), rounds, percent / 100, at_most_s)
    wish = Wish(options, jmx_url, output, force, dry_run, yes, as_json, timeout_s)
    if output is not None and output.exists() and not force:
        raise CommandError(f"{clean(output)} is there already: choose another file, or --force")
    try:
        loaded = config.load(config_file, settings)
        _run(loaded, one_broker(loaded), wish)
    except (ConfigError, QuestionError) as error:
        raise CommandError(clean(error)) from None
    except CalibrationError as error:
        click.echo(f"weir: {clean(error)}", err=True)
        sys.exit(FAILED)


def _apis(text: str | None) -> tuple[ApiKey, ...]:
    if text is None:
        return tuple(COEFFICIENTS)
    by_name = {name.lower(): api for name, api in NAMES.items()}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name.lower() not in by_name]
    if unknown or not names:
        which = clean(unknown[0]) if unknown else "nothing"
        raise click.UsageError(f"--apis: {which} is none of {', '.join(NAMES)}")
    return tuple(dict.fromkeys(by_name[name.lower()] for name in names))


def _run(loaded: Config, broker: Address, wish: Wish) -> None:
    """Calibrate with these options, print the result, and exit. Raises ConfigError, QuestionError,
    CalibrationError.
    """
    scrape = scraper(wish.jmx_url) if wish.jmx_url else None
    user = loaded.credentials.username if loaded.credentials is not None else ANONYMOUS

    def probe(connection: BrokerConnection, broker_versions: NodeApiVersions) -> Probe:
        quotas = QuotaProbe(connection, broker_versions, user)
        return quotas if scrape is None else JmxProbe(scrape, quotas)

    with Bar() as bar:
        calibration = Calibration(
            Access.of(loaded),
            broker,
            wish.timeout_s,
            wish.options,
            loaded.request_time.costs,
            probe,
            run=secrets.token_hex(4),
            now_ms=int(time.time() * 1000),
            say=bar.say,
        )
        outlook = trio.run(calibration.look)
    _announce(outlook, wish)
    if wish.dry_run:
        if wish.as_json:
            echo_json(report(outlook, None, None, None))
        sys.exit(DONE)
    with Bar() as bar:
        calibration.say = bar.say
        stopped_by = trio.run(measure_until_stopped, calibration, outlook)
    _tell_left(calibration.findings)
    if stopped_by:
        click.echo("weir: stopped; nothing was written", err=True)
        sys.exit(INCOMPLETE if calibration.findings.left_behind else 128 + stopped_by)
    _deliver(outlook, calibration.findings, wish)


def _announce(outlook: CalibrationPlan, wish: Wish) -> None:
    """Print the plan of the calibration; on a terminal, ask for confirmation before Weir changes anything at
    the broker.
    """
    for line in plan_lines(outlook, wish.options.share, wish.method):
        click.echo(clean(line), err=not wish.dry_run or wish.as_json)
    if wish.dry_run:
        if not wish.as_json:
            click.echo("\n" + "\n".join(case_lines(outlook)))
            click.echo("\nnothing was changed: --dry-run")
    elif sys.stdin.isatty() and not wish.yes:
        click.confirm("Load this broker now?", abort=True, err=True)


async def measure_until_stopped(calibration: Calibration, outlook: CalibrationPlan) -> int:
    """Measure; at SIGINT or SIGTERM stop, and restore the broker. Return the signal's number, or 0 if no
    signal arrived.

    Raises CalibrationError, QuestionError.
    """
    stopped_by = 0
    failure: Exception | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def heed() -> None:
                nonlocal stopped_by
                async for number in signals:
                    if not stopped_by:
                        stopped_by = number
                        click.echo("weir: stopping: putting everything back", err=True)
                        work.cancel()

            with trio.CancelScope() as work:
                nursery.start_soon(heed)
                try:
                    await calibration.measure(outlook)
                except (CalibrationError, QuestionError) as error:  # without the nursery's exception group
                    failure = error
            nursery.cancel_scope.cancel()
    if failure is not None and not stopped_by:
        _tell_left(calibration.findings)
        raise failure
    return stopped_by


def _tell_left(findings: CalibrationResults) -> None:
    for what in findings.left_behind[:LEFT_SHOWN]:
        click.echo(f"weir: NOT REMOVED, the next run will try: {clean(what)}", err=True)


def _deliver(outlook: CalibrationPlan, findings: CalibrationResults, wish: Wish) -> None:
    """Print the findings of the calibration, write the costs file, and exit."""
    readings = [
        Readings(one.case.api, one.us, one.features, one.case.pause_s * 1e6) for one in findings.found
    ]
    names = {kafka_name(api): names for api, names in COEFFICIENTS.items()}
    found = fit_findings(readings, names, outlook.table)
    if wish.output is not None:
        write(wish.output, file_text(outlook, findings, found, wish), force=wish.force)
    if wish.as_json:
        echo_json(report(outlook, findings, found, str(wish.output) if wish.output else None))
    else:
        show(found, findings)
    if wish.output is not None:
        click.echo(f'written to {wish.output}: use it with request_costs = "{wish.output.name}"', err=True)
    else:
        click.echo("nothing was written: --output FILE writes a file for request_costs", err=True)
    sys.exit(INCOMPLETE if findings.left_behind else DONE)


def file_text(
    outlook: CalibrationPlan,
    findings: CalibrationResults,
    found: CostFindings,
    wish: Wish,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> str:
    """Return the text of the costs file, with comments that name the origin of the costs."""
    fetch = outlook.spoken.get(ApiKey.FETCH)
    source = (
        f"weir calibrate on {now():%Y-%m-%d %H:%M} UTC at {outlook.address} (node {outlook.node_id}), by "
        f"{wish.method}, {wish.options.rounds} rounds"
    )
    costs = found.overrides(f"like {outlook.generation} (Fetch {fetch})", source, outlook.table)
    scaled = {one.api for one in found.coefficients if not one.measured} - {
        one.api for one in found.coefficients if one.measured
    }
    head = [
        "Written by `weir calibrate`; microseconds of one thread, a kB is 1000 bytes.",
        *summary(found, findings),
    ]
    head += [
        f"{one.api}.{one.name}: {one.low:.3g} to {one.high:.3g}" for one in found.coefficients if one.measured
    ]
    note = f"not measured: the former figures, {found.ratio:.2f} times"
    return render(costs, [clean(line) for line in head], dict.fromkeys(scaled, note))
