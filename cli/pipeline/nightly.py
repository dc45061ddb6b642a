"""`weir pipeline nightly`: several jobs, one after the other, in one Spark."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

import click

from weir.cli.exits import CommandError
from weir.cli.pipeline.command import pipeline
from weir.cli.pipeline.run import SHARED, job_options, run_job
from weir.pipeline.outcome import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: Final = ("ingest", "rollup", "recommend", "replay", "report", "maintain")
EXAMPLES: Final = """\b
Examples:
  weir pipeline nightly --lake /srv/lake 'ingest --files /var/lib/weir/usage --once' rollup \\
      'recommend --output new.toml --force --current quotas.toml' 'replay quotas.toml new.toml' \\
      'report --output report.html --force' maintain
"""


@click.command(epilog=EXAMPLES)
@job_options
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
def nightly(root: str, master: str | None, as_json: bool, jobs: tuple[str, ...]) -> None:
    """Run several jobs one after the other in one Spark, which takes most of a small job's time to start.

    Each argument is a job with its own options, as after `weir pipeline`, but without --lake, --master,
    --driver-memory and --jars. The first job that fails is the last one that runs. With --json, each job and
    then nightly prints a JSON object on a line.
    """
    contexts = [_prepared(job, {"root": root, "as_json": as_json}) for job in jobs]

    def run(spark: SparkSession) -> Outcome:
        for context in contexts:
            context.meta[SHARED] = spark
            with context:
                context.command.invoke(context)
        return Outcome("nightly", wrote={"jobs": len(jobs)})

    run_job("nightly", run, master=master, as_json=as_json)


def _prepared(job: str, defaults: dict[str, str | bool]) -> click.Context:
    """Return the context of one job, which has read its options. Raises CommandError if they are wrong."""
    try:
        name, *options = shlex.split(job)
        command = pipeline.get_command(click.get_current_context(), name) if name in JOBS else None
        if command is None:
            raise CommandError(f"{name}: no job, must be one of {', '.join(JOBS)}")
        return command.make_context(name, options, default_map=defaults)
    except ValueError as error:
        raise CommandError(f"{job!r}: not a job with its options: {error}") from None
    except click.UsageError as error:
        raise CommandError(f"{job}: {error.format_message()}") from None
