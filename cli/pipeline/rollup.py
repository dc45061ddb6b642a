"""`weir pipeline rollup`: sum usage records by entity, hour and day."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

import click

from weir.cli.exits import CommandError
from weir.cli.pipeline.days import Days
from weir.cli.pipeline.run import job_options, run_job
from weir.cli.quantity import Quantity
from weir.pipeline.spark import at_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weir.pipeline.outcome import Outcome

EXAMPLES: Final = """\b
Examples:
  weir pipeline rollup --lake /srv/lake
  weir pipeline rollup --lake /srv/lake --days 2026-11-01..2026-11-20 --all
  weir pipeline rollup --lake s3a://bucket/usage --json
"""


@click.command(epilog=EXAMPLES)
@job_options
@click.option(
    "--window-seconds",
    "window_s",
    type=Quantity("s", 1, whole=True),
    default=10,
    show_default=True,
    help="Window of the average rates that percentiles are computed from: brokers do so for quotas.",
)
@click.option(
    "--days", metavar="FROM..TO", type=Days(), help="Compute the days from the first to the last, in UTC."
)
@click.option("--all", "again", is_flag=True, help="Compute every day.")
def rollup(
    root: str, master: str | None, as_json: bool, window_s: int, days: tuple[date, date] | None, again: bool
) -> None:
    """Sum usage by entity, broker and hour and day: totals, percentiles of rates, throttled time.

    Without --days or --all, only days with new usage are computed, each completely. The job may be killed and
    run again at any time.
    """

    if at_server(master) and not (again or days):
        raise CommandError("rollup cannot follow new usage at Spark Connect: give --days FROM..TO, or --all")

    def job(spark: SparkSession) -> Outcome:
        from weir.pipeline.lake import Lake
        from weir.pipeline.rollup.job import rollup as roll

        return roll(spark, Lake(root), window_s=window_s, days=days, again=again)

    run_job("rollup", job, master=master, as_json=as_json)
