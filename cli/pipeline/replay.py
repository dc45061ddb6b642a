"""`weir pipeline replay`: compute the throttles of other quota files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from weir.cli.pipeline.days import Days
from weir.cli.pipeline.run import cluster_option, job_options, run_job
from weir.cli.quantity import Quantity

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import SparkSession

    from weir.pipeline.outcome import Outcome

EXAMPLES: Final = """\b
Examples:
  weir pipeline replay --lake /srv/lake quotas.toml
  weir pipeline replay --lake /srv/lake quotas.toml proposed.toml --days 2026-11-20..2026-11-21
  weir pipeline replay --lake /srv/lake proposed.toml --from trace --compare-sources
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
@click.option(
    "--quota-window-num", type=click.IntRange(1), default=11, show_default=True, help="As in weir run."
)
@click.option(
    "--quota-window-size-seconds",
    type=Quantity("s", 1, whole=True),
    default=1,
    show_default=True,
    help="As in weir run.",
)
@click.option(
    "--controller-quota-window-num",
    type=click.IntRange(1),
    default=11,
    show_default=True,
    help="As in weir run.",
)
@click.option(
    "--controller-quota-window-size-seconds",
    type=Quantity("s", 1, whole=True),
    default=1,
    show_default=True,
    help="As in weir run.",
)
@click.option(
    "--throttle-ms-max",
    type=Quantity("ms", 0, whole=True),
    default=0,
    show_default=True,
    help="As in weir run.",
)
@click.option(
    "--quota-pacing",
    type=click.Choice(["kafka", "smooth"]),
    default="kafka",
    show_default=True,
    help="As in weir run.",
)
@click.option(
    "--empty-client-id",
    type=click.Choice(["unlimited", "default"]),
    default="unlimited",
    show_default=True,
    help="As in weir run.",
)
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
    quota_window_num: int,
    quota_window_size_seconds: int,
    controller_quota_window_num: int,
    controller_quota_window_size_seconds: int,
    throttle_ms_max: int,
    quota_pacing: str,
    empty_client_id: str,
    patience_s: int,
    charges_per_record: int,
    compare_sources: bool,
    top: int,
) -> None:
    """Compute what quota files would have throttled: when, and for how long.

    Recorded usage is replayed under each of the files QUOTAS, by the code that enforces quotas, and compared
    with the other files and with the recorded throttles. No quotas are changed.
    """

    def job(spark: SparkSession) -> Outcome:
        from weir.pipeline.lake import Lake
        from weir.pipeline.replay.job import ReplayOptions, replay
        from weir.pipeline.replay.run import BudgetSettings
        from weir.quotas.limiters.throttle import INT32_MAX
        from weir.quotas.table.bounded_names import EMPTY
        from weir.quotas.table.options import Pacing

        settings = BudgetSettings(
            quota_window_num,
            quota_window_size_seconds,
            controller_quota_window_num,
            controller_quota_window_size_seconds,
            patience_ms=1000 * patience_s,
            throttle_ms_max=throttle_ms_max or INT32_MAX,
            charges_per_record=charges_per_record,
        )
        unnamed = EMPTY if empty_client_id == "default" else ""
        options = ReplayOptions(
            source=source,
            cluster=cluster,
            days=days,
            settings=settings,
            unnamed=unnamed,
            pacing=Pacing(quota_pacing),
            compare_sources=compare_sources,
            top=top,
        )
        return replay(spark, Lake(root), candidates, options)

    run_job("replay", job, master=master, as_json=as_json)
