"""`weir pipeline report`: the pipeline's tables as one HTML page."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from weir.cli.input_file import read_parsed
from weir.cli.output_file import check_free, write_lines
from weir.cli.pipeline.days import Days
from weir.cli.pipeline.run import cluster_option, job_options, run_job
from weir.cli.quotas.entity import RATES_HELP, parse_assignments
from weir.pipeline.outcome import PipelineError
from weir.proxy.build import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from weir.pipeline.outcome import Outcome
    from weir.pipeline.report.prices import Prices

EXAMPLES: Final = """\b
Examples:
  weir pipeline report --lake /srv/lake --output report.html
  weir pipeline report --lake s3a://bucket/usage --output report.html --days 2026-11-01..2026-11-07
  weir pipeline report --lake /srv/lake --output users.html --level user --top 50 --force
  weir pipeline report --lake /srv/lake --output report.html --cluster production \\
    --capacity producer_byte_rate=100MB --capacity consumer_byte_rate=200MB
  weir pipeline report --lake /srv/lake --output october.html --days 2026-10-01..2026-10-31 \\
    --level user --prices prices.toml --csv october.csv
"""
LEVELS: Final = ("user-client-id", "user", "client-id")
TOP_MAX: Final = 50
"""Maximum of --top, which keeps the page below 1 MB."""


@click.command(epilog=EXAMPLES)
@job_options
@cluster_option
@click.option(
    "--output",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The page to write.",
)
@click.option("--days", metavar="FROM..TO", type=Days(), help="First and last day, in UTC. [default: all]")
@click.option(
    "--top",
    type=click.IntRange(1, TOP_MAX),
    default=30,
    show_default=True,
    help="Number of clients with a page of their own.",
)
@click.option(
    "--capacity",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"Capacity of each broker, as for recommend. [default: unknown] {RATES_HELP}",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default=LEVELS[0],
    show_default=True,
    help="Entities are pairs of user and client-id, users, or client-ids.",
)
@click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Prices of bytes and request time: show what each client used, and its price.",
)
@click.option(
    "--csv",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the use of all clients to this file, too.",
)
@click.option(
    "--group-csv",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the use of all groups of clients to this file, too.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
def report(
    root: str,
    master: str | None,
    as_json: bool,
    cluster: str,
    output: Path,
    days: tuple[date, date] | None,
    top: int,
    capacity: tuple[str, ...],
    level: str,
    prices: Path | None,
    csv: Path | None,
    group_csv: Path | None,
    force: bool,
) -> None:
    """Draw the tables as one HTML page, which needs no network.

    The first screen has the main findings, the load of each broker and the next actions. Below it are the
    load over time, a table of clients, replays of other quotas, and the quality of the records. The busiest
    clients have pages of their own. For a missing table, the page names the job that makes it.
    """
    for file in filter(None, (output, csv, group_csv)):
        check_free(file, force=force)
    found_prices = None if prices is None else _prices(prices)
    wanted_capacity = {key.value: value for key, value in parse_assignments(capacity).items()}

    def job(spark: SparkSession) -> Outcome:
        from weir.pipeline.lake import Lake
        from weir.pipeline.report.job import report as run  # needs Spark and Jinja2: not for --help
        from weir.pipeline.report.model import ReportOptions

        return run(
            spark,
            Lake(root),
            str(output),
            wanted=ReportOptions(cluster, days, level, top, wanted_capacity),
            made=datetime.now(UTC),
            version=VERSION,
            write=lambda text: write_lines(output, [text], force=force),
            prices=found_prices,
            write_csv=_writer(csv, force=force),
            write_group_csv=_writer(group_csv, force=force),
        )

    run_job("report", job, master=master, as_json=as_json)


def _writer(file: Path | None, *, force: bool) -> Callable[[str], None] | None:
    return None if file is None else lambda text: write_lines(file, [text], force=force)


def _prices(file: Path) -> Prices:
    """Read a file of prices. Raises CommandError."""
    from weir.pipeline.report.prices import parse_prices

    return read_parsed(file, parse_prices, PipelineError)
