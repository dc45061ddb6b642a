"""`weir pipeline maintain`: compact and clean up the tables."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from weir.cli.pipeline.run import job_options, retention_option, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weir.pipeline.outcome import Outcome

EXAMPLES: Final = """\b
Examples:
  weir pipeline maintain --lake /srv/lake
  weir pipeline maintain --lake /srv/lake --retention-days 90 --rollup-retention-days 400
"""


@click.command(epilog=EXAMPLES)
@job_options
@retention_option
@click.option(
    "--rollup-retention-days",
    type=click.IntRange(1),
    help="Number of days for which roll-ups are kept; trends need 90. [default: for ever]",
)
@click.option(
    "--history-days",
    type=click.IntRange(7),
    default=7,
    show_default=True,
    help="Number of days for which earlier versions of the tables can be read.",
)
def maintain(
    root: str,
    master: str | None,
    as_json: bool,
    retention_days: int | None,
    rollup_retention_days: int | None,
    history_days: int,
) -> None:
    """Take rejected lines in that are valid by now, delete old rows, and compact files.

    Run it about daily. Other jobs may run meanwhile.
    """

    def job(spark: SparkSession) -> Outcome:
        from weir.pipeline.lake import Lake
        from weir.pipeline.maintain import maintain as clean

        now_ms = round(time.time() * 1000)
        return clean(
            spark,
            Lake(root),
            now_ms,
            keep_days=retention_days,
            keep_rollup_days=rollup_retention_days,
            history_days=history_days,
        )

    run_job("maintain", job, master=master, as_json=as_json)
