"""`weir pipeline`: the jobs of the usage pipeline."""

from __future__ import annotations

from typing import Final

import click

from weir.cli.lazy import LazyCommand, LazyCommands

JOBS: Final = {
    "ingest": "Take usage records into the tables.",
    "rollup": "Sum up use by entity and hour and day.",
    "recommend": "Propose quotas from what was used.",
    "replay": "Compute what quotas would have throttled.",
    "report": "Draw all of it as one HTML page.",
    "maintain": "Compact the tables, delete old rows, take rejected lines in again.",
    "nightly": "Run several of these jobs in one Spark.",
    "jars": "Print the jars for spark-submit.",
}
"""Jobs in the order in which they are run, and other commands. Each has a module in this package."""


class _Jobs(click.Group):
    """Lists the jobs in the order in which they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's name
        return list(self.commands)


@click.group(
    cls=_Jobs,
    commands=LazyCommands(
        {name: LazyCommand(f"weir.cli.pipeline.{name}:{name}", text) for name, text in JOBS.items()}
    ),
)
def pipeline() -> None:
    """Turn recorded usage into roll-ups, recommended quotas, what-if replays and a report, with Spark."""
