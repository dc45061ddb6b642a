"""`weir pipeline`: the jobs of the usage pipeline."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from weir.cli.lazy import LazyCommand, LazyCommands

if TYPE_CHECKING:
    from collections.abc import Sequence

JOBS: Final = {
    "ingest": "Take usage records into the tables.",
    "rollup": "Sum up use by entity and hour and day.",
    "recommend": "Propose quotas from what was used.",
    "replay": "Compute what quotas would have throttled.",
    "report": "Draw all of it as one HTML page.",
    "maintain": "Compact the tables, delete old rows, take rejected lines in again.",
}
"""Jobs in the order in which they are run. Each has a module in this package."""
THEN: Final = "then"
"""Word between two jobs that run one after the other."""
EXAMPLES: Final = """\b
Examples:
  weir pipeline ingest --lake /srv/lake --files /var/lib/weir/usage --once then rollup
  spark-submit --master yarn --jars "$(weir pipeline --spark-jars)" cli/pipeline/submit.py rollup --lake hdfs:///lake
"""
_WORDS: Final = f"{__name__}.words"
"""Key of the words of each job, in the meta data of the context."""


class _Jobs(click.Group):
    """Lists the jobs in the order in which they are run, and runs several one after the other."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's name
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set all jobs aside, and parse the words of the first one."""
        jobs = [list(words) for is_then, words in groupby(args, lambda word: word == THEN) if not is_then]
        if ctx.resilient_parsing:  # a shell completes the last job
            return super().parse_args(ctx, [] if not args or args[-1] == THEN else jobs[-1])
        if args and len(jobs) != args.count(THEN) + 1:
            raise click.UsageError(f"{THEN} must stand between two jobs", ctx)
        ctx.meta[_WORDS] = jobs
        return super().parse_args(ctx, jobs[0] if jobs else [])

    def invoke(self, ctx: click.Context) -> object:
        jobs: list[list[str]] = ctx.meta[_WORDS]
        if len(jobs) == 1:
            return super().invoke(ctx)
        from weir.cli.pipeline.run import run_jobs  # not needed for a help

        run_jobs(self._contexts(ctx, jobs))
        return None

    def _contexts(self, ctx: click.Context, jobs: Sequence[Sequence[str]]) -> list[click.Context]:
        """Return the contexts of the jobs, which have read their options; those after the first one have its
        lake and output. Raises click.UsageError.
        """
        shared: list[str] = []
        contexts = list[click.Context]()
        for words in jobs:
            name, command, options = self.resolve_command(ctx, list(words))
            assert command is not None
            assert name is not None
            # Without a parent, whose meta data all jobs would share: each notes its options of Spark there.
            made = command.make_context(
                f"{ctx.command_path} {name}",
                [*shared, *options],
                auto_envvar_prefix=f"{ctx.auto_envvar_prefix}_{name.upper()}",
                help_option_names=ctx.help_option_names,
                max_content_width=ctx.max_content_width,
            )
            if contexts:
                _check_session(made)
            else:
                shared = ["--lake", made.params["root"], *(["--json"] if made.params["as_json"] else [])]
            contexts.append(made)
        return contexts


def _check_session(later: click.Context) -> None:
    """Raise click.UsageError if a job that is not the first one has options of Spark."""
    for option in ("master", "driver_memory", "jars"):
        if later.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            name = option.replace("_", "-")
            raise click.UsageError(f"all jobs share one Spark: give --{name} to the first one", later)


def _print_jars(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    """Print the paths of the jars, after a download of missing ones. Raises CommandError if it fails."""
    if not is_asked or context.resilient_parsing:
        return
    from weir.cli.exits import CommandError
    from weir.pipeline.jars import JARS, loading, provided
    from weir.pipeline.outcome import PipelineError

    try:
        click.echo(loading(provided(s3=True))[JARS])
    except PipelineError as error:
        raise CommandError(str(error)) from None
    context.exit()


@click.group(
    cls=_Jobs,
    commands=LazyCommands(
        {name: LazyCommand(f"weir.cli.pipeline.{name}:{name}", text) for name, text in JOBS.items()}
    ),
    epilog=EXAMPLES,
    subcommand_metavar=f"JOB [OPTION]... [{THEN} JOB [OPTION]...]...",
)
@click.option(
    "--spark-jars",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_jars,
    help="Print the jars for spark-submit, and fetch missing ones.",
)
def pipeline() -> None:
    """Turn recorded usage into roll-ups, recommended quotas, what-if replays and a report, with Spark.

    Jobs with `then` between them run one after the other in one Spark, which takes most of a small job's time
    to start. The lake, the options of Spark and --json of the first one apply to all. The first job that
    fails is the last one that runs.
    """
