"""`weir pipeline`: the jobs of the usage pipeline."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

JOBS: Final = {
    "ingest": "Take usage records into the tables.",
    "rollup": "Sum up use by entity and hour and day.",
    "recommend": "Propose quotas from what was used.",
    "replay": "Compute what quotas would have throttled.",
    "report": "Draw all of it as one HTML page.",
    "maintain": "Compact the tables, delete old rows, take rejected lines in again.",
    "nightly": "Run several of these jobs in one Spark.",
    "jars": "Print the jars for spark-submit.",
    "demo": "Record real clients for half a minute, and run all jobs.",
}
"""Jobs in the order in which they are run, and other commands. Each has a module in this package, which is
loaded when the command is run.
"""


class _Jobs(click.Group):
    """Loads a job's module only to run the job or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's name
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's names
        if cmd_name not in JOBS:
            return None
        command: click.Command = getattr(import_module(f"weir.cli.pipeline.{cmd_name}"), cmd_name)
        command.short_help = JOBS[cmd_name]
        return command


@click.group(cls=_Jobs)
def pipeline() -> None:
    """Turn recorded usage into roll-ups, recommended quotas, what-if replays and a report, with Spark."""
