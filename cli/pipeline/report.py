"""`weir pipeline report`: the pipeline's tables as one HTML page."""

from __future__ import annotations

from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from weir.cli.output_file import check_free, write_lines
from weir.cli.pipeline.days import Days
from weir.cli.pipeline.run import job_options, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weir.pipeline.outcome import Outcome

EXAMPLES: Final = """\b
Examples:
  weir pipeline report --lake /srv/lake --output report.html
  weir pipeline report --lake s3a://bucket/usage --output report.html --days 2026-11-01..2026-11-07
  weir pipeline report --lake /srv/lake --output users.html --level user --top 50 --force
"""
LEVELS: Final = ("user-client-id", "user", "client-id")
TOP_MAX: Final = 200
"""Maximum of --top; a chart with more rows is unreadable."""


@click.command(epilog=EXAMPLES)
@job_options
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
    help="Number of entities in each chart; the others are summed up.",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default=LEVELS[0],
    show_default=True,
    help="Entities are pairs of user and client-id, users, or client-ids.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def report(
    root: str,
    master: str | None,
    as_json: bool,
    output: Path,
    days: tuple[date, date] | None,
    top: int,
    level: str,
    force: bool,
) -> None:
    """Draw the tables as one HTML page, which needs no network.

    The page shows the usage of entities by hour, the largest users, throttled entities, recommended beside
    current quotas, replays of other quotas, and the quality of the records. For a missing table, the page
    names the job that makes it.
    """
    check_free(output, force=force)

    def job(spark: SparkSession) -> Outcome:
        from weir.pipeline.lake import Lake
        from weir.pipeline.report.data import Wanted
        from weir.pipeline.report.job import report as run  # needs Spark and plotly: not for --help

        return run(
            spark,
            Lake(root),
            str(output),
            wanted=Wanted(days=days, top=top, level=level),
            made=datetime.now(UTC),
            version=version("kafka-weir"),
            write=lambda text: write_lines(output, [text], force=force),
        )

    run_job("report", job, master=master, as_json=as_json)
