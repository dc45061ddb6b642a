"""Compare the request time that Weir estimates with the request time that real brokers measure (JMX).

Each workload runs twice: directly at the broker, to compare the broker's figures with the estimates of the
cost model, and through Weir, to compare them with the charges of Weir. `weir calibrate` measures costs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click
from rich.console import Console

from bench import command, render
from bench.report import Table
from bench.request_time import comparing, report
from bench.request_time.comparing import Compared
from bench.request_time.loop import LoopError
from bench.request_time.stand import VERSIONS, StandError, standing
from bench.request_time.topics import TopicsError
from bench.request_time.truth import TruthError
from bench.request_time.workloads import WORKLOADS
from bench.targets import TargetError
from tests.kafka import ClusterError, JarError, JavaMissingError
from weir.quotas.costs.request_costs import CostsError, shipped

FAILURES: Final = (
    *(StandError, TopicsError, TruthError, LoopError, TargetError, CostsError),
    *(ClusterError, JarError, JavaMissingError, OSError),
)


@click.command(help=__doc__)
@click.option("--brokers", default="", help=f"Some of {', '.join(VERSIONS)}, joined by commas; default: all.")
@click.option("--workloads", default="", help="Names of workloads, joined by commas; default: all.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=2.0,
    show_default=True,
    help="Duration (s) of a measurement.",
)
def main(brokers: str, workloads: str, seconds: float) -> None:
    versions = command.chosen(brokers, VERSIONS, "--brokers")
    names = command.chosen(workloads, [workload.name for workload in WORKLOADS], "--workloads")
    chosen = [workload for workload in WORKLOADS if workload.name in names]
    compared = list[Compared]()
    kinds = {workload.name: comparing.kind_of(workload) for workload in chosen}
    with command.progress() as say:
        for version in versions:
            costs = shipped(version.rpartition(".")[0])
            try:
                with standing(version) as stand:
                    compared.append(comparing.compare(stand, chosen, costs, seconds, say))
            except FAILURES as error:
                click.echo(f"error: {version}: {error}", err=True)
                continue
            _show(report.tables(compared[-1]), report.notes(compared[-1], kinds))
    if len(compared) < len(versions):
        sys.exit(1)


def _show(tables: Sequence[Table], notes: Sequence[str]) -> None:
    if sys.stdout.isatty():
        render.terminal(Console(), tables, notes)
    else:
        click.echo(render.markdown(tables, notes))


if __name__ == "__main__":
    command.run(main, "python -m bench.request_time", FAILURES)
