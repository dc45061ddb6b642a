"""`weir pipeline recommend`: propose a quota file from recorded usage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as dc_replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from weir.cli.exits import CommandError
from weir.cli.input_file import read_parsed
from weir.cli.output_file import check_free, write_lines
from weir.cli.pipeline.days import Days
from weir.cli.pipeline.run import cluster_option, job_options, run_job
from weir.cli.quotas.entity import RATES_HELP, parse_assignments, parse_key
from weir.pipeline.outcome import Listing, Outcome, PipelineError
from weir.pipeline.recommend.plan import AUTO, FLOORS, LEVELS, PERCENTILES, ROBUST, RecommendationPlan
from weir.quotas import QuotaFileError, QuotaKey, parse
from weir.quotas.table.ends import in_force_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
_THROTTLED_MAX: Final = 100
"""Maximum number of throttled budgets that `--what-if` lists."""
_DEFAULTS: Final = RecommendationPlan(now=datetime.min)  # noqa: DTZ901  # only for its other fields

EXAMPLES: Final = """\b
Examples:
  weir pipeline recommend --lake /srv/lake --output new.toml --current quotas.toml --what-if
  weir pipeline recommend --lake lake --output new.toml --current quotas.toml --days 2026-11-01..2026-11-20
  weir pipeline recommend --lake lake --output new.toml --growth 0.2 --headroom 1.5 \\
    --capacity producer_byte_rate=100MB --capacity consumer_byte_rate=200MB --over-commitment 1.5
  weir pipeline recommend --lake lake --output new.toml --level user --floor producer_byte_rate=5MB

\b
Then look at it, and use it (--what-if has tried it):
  weir quotas list --quotas new.toml
  weir run --quotas new.toml ...
"""


@click.command(epilog=EXAMPLES)
@job_options
@cluster_option
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The quota file to write; it appears when it is complete.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option(
    "--current",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The quota file in force: for flags, for prefixes, and for entries to keep.",
)
@click.option(
    "--level",
    type=click.Choice([AUTO, *LEVELS]),
    default=_DEFAULTS.level,
    show_default=True,
    help="Entities with an entry. auto: client-ids if every user is ANONYMOUS, else users with client-ids.",
)
@click.option("--days", metavar="FROM..TO", type=Days(), help="First and last day, in UTC. [default: all]")
@click.option(
    "--quotas",
    "keys",
    metavar="KEY,...",
    default=",".join(key.value for key in _DEFAULTS.quotas),
    show_default=True,
    help="Quota keys to recommend.",
)
@click.option(
    "--percentile",
    type=click.Choice([str(percentile) for percentile in PERCENTILES]),
    default=str(_DEFAULTS.percentile),
    show_default=True,
    help="Percentile of the ten-second rates within an hour; 100 is the largest.",
)
@click.option(
    "--hours-percentile",
    type=float,
    default=None,
    help=f"Percentile of the hours with such usage; 100 is the busiest. [default: {ROBUST:g}]",
)
@click.option(
    "--growth",
    type=float,
    default=_DEFAULTS.growth,
    show_default=True,
    help="Expected growth of usage: 0.2 is 20 %.",
)
@click.option(
    "--headroom",
    type=float,
    default=_DEFAULTS.headroom,
    show_default=True,
    help="Factor on the needed quota.",
)
@click.option(
    "--floor",
    "floors",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"Smallest quotas. [default: {', '.join(f'{k.value}={v:.0f}' for k, v in FLOORS.items())}] "
    + RATES_HELP,
)
@click.option(
    "--capacity",
    multiple=True,
    metavar="KEY=VALUE",
    help="Capacity of each broker (mutations: of the cluster), which limits proposals. [default: no limit]",
)
@click.option(
    "--over-commitment",
    type=float,
    default=_DEFAULTS.over_commitment,
    show_default=True,
    help="Largest load of a broker under the quotas, as a multiple of the capacity.",
)
@click.option(
    "--min-active-hours",
    type=int,
    default=_DEFAULTS.min_active_hours,
    show_default=True,
    help="Entities active in fewer hours get no entry: client-ids with random parts.",
)
@click.option(
    "--near",
    type=float,
    default=_DEFAULTS.near,
    show_default=True,
    help="Flag entities that never used this share of their current quota.",
)
@click.option(
    "--what-if", is_flag=True, help="Replay the records under the new file, and show whom it would throttle."
)
@click.option(
    "--no-default", is_flag=True, help="Write an entry for every entity, and no default for new ones."
)
def recommend(
    root: str,
    master: str | None,
    as_json: bool,
    cluster: str,
    output: Path,
    force: bool,
    current: Path | None,
    level: str,
    days: tuple[date, date] | None,
    keys: str,
    percentile: str,
    hours_percentile: float | None,
    growth: float,
    headroom: float,
    floors: tuple[str, ...],
    capacity: tuple[str, ...],
    over_commitment: float,
    min_active_hours: int,
    near: float,
    what_if: bool,
    no_default: bool,
) -> None:
    """Propose a quota for each user and client-id from recorded usage, as a quota file with reasons.

    A quota is the usage of a busy hour at the busiest broker, times growth and headroom, and at least the
    floor. One default entry covers all that need no more than the floor. If a quota held an entity back, the
    proposal is a first step. Reads the table of `weir pipeline rollup`.
    """
    now = datetime.now(UTC)
    plan = RecommendationPlan(
        now=now,
        output=str(output),
        level=level,
        cluster=cluster,
        days=days,
        quotas=parse_keys(keys),
        percentile=int(percentile),
        hours_percentile=hours_percentile,
        growth=growth,
        headroom=headroom,
        floors=parse_assignments(floors),
        capacity=parse_assignments(capacity),
        over_commitment=over_commitment,
        min_active_hours=min_active_hours,
        with_default=not no_default,
        near=near,
        current=(None if current is None else in_force_at(read_parsed(current, parse, QuotaFileError), now)),
        current_name="" if current is None else current.name,
    )
    check_free(output, force=force)
    try:
        plan.check()
    except PipelineError as error:
        raise CommandError(str(error)) from None
    write = partial(write_lines, output, force=force)
    files = [*dict.fromkeys(file for file in (current, output) if file is not None)] if what_if else []
    run_job("recommend", partial(_job, root, plan, write, files), master=master, as_json=as_json)


def _job(
    root: str, plan: RecommendationPlan, write: partial[None], candidates: Sequence[Path], spark: SparkSession
) -> Outcome:
    from weir.pipeline.lake import Lake
    from weir.pipeline.recommend.job import recommend as job  # needs Spark: not for --help

    outcome = job(spark, Lake(root), plan, write)
    if not candidates or not outcome.read["hours"]:  # without hours there is no new file
        return outcome
    from weir.pipeline.replay.job import ReplayOptions, replay

    options = ReplayOptions(cluster=plan.cluster, days=plan.days, top=_THROTTLED_MAX)
    replayed = replay(spark, Lake(root), candidates, options)
    totals, budgets = replayed.listings
    throttled = _throttled(budgets)
    nobody = () if throttled.rows else (f"{budgets.columns[-1]} would throttle nobody",)
    return dc_replace(
        outcome,
        wrote=outcome.wrote | {"replayed hours": replayed.wrote["hours"]},
        where=outcome.where | {"replayed hours": replayed.where["hours"]},
        notes=(*outcome.notes, *replayed.notes, *nobody),
        listings=(*outcome.listings, totals, *(() if nobody else (throttled,))),
    )


def _throttled(budgets: Listing) -> Listing:
    """Return the rows of budgets that the new file, the last of the candidates, throttles or may throttle."""
    rows = tuple(row for row in budgets.rows if row[-1] not in (None, "0.0"))
    title = f"throttled s of the {len(rows)} budgets that {budgets.columns[-1]} would throttle"
    return dc_replace(budgets, title=title, rows=rows)


def parse_keys(text: str) -> tuple[QuotaKey, ...]:
    """Parse quota keys separated by commas; each key may occur once. Raises click.UsageError for an unknown
    or repeated key.
    """
    return tuple(dict.fromkeys(parse_key(name.strip()) for name in text.split(",")))
