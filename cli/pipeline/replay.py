"""`weir pipeline replay`: compute the throttles of other quota files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from weir.cli.exits import CommandError
from weir.cli.pipeline.days import Days
from weir.cli.pipeline.run import cluster_option, job_options, run_job
from weir.cli.quantity import Quantity
from weir.cli.settings.options import config_file_option
from weir.proxy.config.config import ConfigError, ConfigMistakesError, read

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import SparkSession

    from weir.pipeline.outcome import Outcome

EXAMPLES: Final = """\b
Examples:
  weir pipeline replay --lake /srv/lake quotas.toml
  weir pipeline replay --lake /srv/lake quotas.toml proposed.toml --days 2026-11-20..2026-11-21
  weir pipeline replay --lake /srv/lake proposed.toml --from trace --compare-sources --config weir.toml
"""


@click.command(epilog=EXAMPLES)
@click.argument("candidates", metavar="QUOTAS...", nargs=-1, required=True, type=click.Path(path_type=Path))
@job_options
@cluster_option
@click.option(
    "--from",
    "source",
    type=click.Choice(["usage", "trace"]),
    default="usage",
    show_default=True,
    help="Replay usage records, or the requests of traced clients.",
)
@click.option("--days", metavar="FROM..TO", type=Days(), help="First and last day, in UTC. [default: all]")
@config_file_option("Weir's configuration: windows, pacing, throttle_ms_max, and empty_client_id.")
@click.option(
    "--patience-s",
    type=Quantity("s", 1, whole=True),
    default=120,
    show_default=True,
    help="Time after which a client gives up a waiting request.",
)
@click.option(
    "--charges-per-record",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Largest number of charges into which the requests of one usage record are divided.",
)
@click.option(
    "--compare-sources", is_flag=True, help="Replay both usage and traces, and compare the results."
)
@click.option("--top", type=click.IntRange(0), default=10, show_default=True, help="Entities to list.")
def replay(
    candidates: tuple[Path, ...],
    root: str,
    master: str | None,
    as_json: bool,
    cluster: str,
    source: Literal["usage", "trace"],
    days: tuple[date, date] | None,
    config_file: Path | None,
    patience_s: int,
    charges_per_record: int,
    compare_sources: bool,
    top: int,
) -> None:
    """Compute what quota files would have throttled: when, and for how long.

    Recorded usage is replayed under each of the files QUOTAS, by the code that enforces quotas, and compared
    with the other files and with the recorded throttles. No quotas are changed.
    """

    try:
        configured, _in_file, mistakes = read(config_file, {})  # not `load`: Weir's own files are elsewhere
        if mistakes:
            raise ConfigMistakesError(mistakes)
    except ConfigError as error:
        raise CommandError(str(error)) from None

    def job(spark: SparkSession) -> Outcome:
        from weir.pipeline.lake import Lake
        from weir.pipeline.replay.job import ReplayOptions, replay
        from weir.pipeline.replay.run import BudgetSettings
        from weir.quotas.limiters.throttle import INT32_MAX
        from weir.quotas.table.bounded_names import EMPTY
        from weir.quotas.table.options import Pacing

        settings = BudgetSettings(
            configured.quota_window_num,
            configured.quota_window_size_seconds,
            patience_ms=1000 * patience_s,
            throttle_ms_max=configured.throttle_ms_max or INT32_MAX,
            charges_per_record=charges_per_record,
        )
        unnamed = EMPTY if configured.empty_client_id == "default" else ""
        options = ReplayOptions(
            source=source,
            cluster=cluster,
            days=days,
            settings=settings,
            unnamed=unnamed,
            pacing=Pacing(configured.quota_pacing),
            compare_sources=compare_sources,
            top=top,
        )
        return replay(spark, Lake(root), candidates, options)

    run_job("replay", job, master=master, as_json=as_json)
