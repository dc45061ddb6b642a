"""Measure the cost of a request in Weir and in other proxies. Prints tables as Markdown, and writes
every figure of every round to a JSON file.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Final

import click

from bench import command, document, entities, record, render, report, sasl, tls
from bench.broker import BrokerError
from bench.document import DocumentError
from bench.load import LoadError
from bench.measure import Results
from bench.rows import ROWS
from bench.run import PARTS, UPSTREAMS, Plan, run
from bench.targets import TARGETS, TargetError
from bench.targets.weir import other_tree
from tests.clients import ClientError
from tests.kafka import ClusterError, JarError, JavaMissingError

RESULTS: Final = Path(__file__).parent / "results"
FAILURES: Final = (
    BrokerError,
    ClientError,
    ClusterError,
    DocumentError,
    JarError,
    JavaMissingError,
    LoadError,
    OSError,
    TargetError,
)
"""Exceptions that `main` reports as one line instead of a traceback."""


@click.command(help=__doc__, context_settings={"max_content_width": 110})
@click.option("--parts", default="", help=f"Comma-separated: {', '.join(PARTS)}. Default: all.")
@click.option(
    "--rows",
    default="",
    help=f"Comma-separated: {', '.join(r.name for r in ROWS)}. Default: all.",
)
@click.option(
    "--targets", default="", help=f"Comma-separated: {', '.join(t.name for t in TARGETS)}. Default: all."
)
@click.option(
    "--tree", type=click.Path(path_type=Path), multiple=True, help="Also measure the Weir of this checkout."
)
@click.option("--seconds", default=2.0, show_default=True, help="Duration (s) of each measurement.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option(
    "--broker",
    "behind",
    type=click.Choice(list(UPSTREAMS)),
    default="kafka",
    show_default=True,
    help="Broker behind the targets: a Kafka broker, or a stub that sends prepared responses.",
)
@click.option(
    "--hurry", is_flag=True, help="Skip the warm-up, to try the benchmark; the figures are worthless."
)
@click.option("--idle", "connections", default=10_000, show_default=True, type=click.IntRange(1))
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    help="File for all figures.  [default: bench/results/TIME.json]",
)
@click.option(
    "--document",
    "page",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Markdown page whose figures are replaced, such as docs/background/performance.md.",
)
def main(
    parts: str,
    rows: str,
    targets: str,
    tree: tuple[Path, ...],
    seconds: float,
    rounds: int,
    behind: str,
    hurry: bool,
    connections: int,
    json_file: Path | None,
    page: Path | None,
) -> None:
    if page is not None:
        document.check(page)
    trees = [path.resolve() for path in tree]
    others = list(map(other_tree, trees))
    if len({target.name for target in others}) < len(others):
        raise click.BadParameter("two directories of the same name", param_hint="--tree")
    loads = command.chosen(rows, ROWS, "--rows", attrgetter("name"))
    proxies = command.chosen(targets, TARGETS, "--targets", attrgetter("name"))
    outcome = report.Outcome(
        Results(loads, [*proxies, *others]),
        Results(entities.rows(), entities.IN_A_HURRY if hurry else entities.TARGETS),
        Results(tls.rows(loads), tls.targets(proxies, trees)),
        Results(sasl.rows(loads), sasl.TARGETS),
    )
    plan = Plan(command.chosen(parts, PARTS, "--parts"), behind, seconds, rounds, connections, hurry)
    run(plan, outcome, command.say)
    file = json_file or RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record.as_json(outcome, asdict(plan)), indent=1) + "\n")
    _show(outcome, record.summary(outcome, asdict(plan)), page)
    click.echo(f"every figure: {file}", err=True)


def _show(outcome: report.Outcome, summary: str, page: Path | None) -> None:
    if page is not None:
        document.put(page, render.markdown(report.page_tables(outcome), [summary, *report.notes(outcome)]))
    tables, notes = report.tables(outcome), [summary, *report.notes(outcome)]
    click.echo(render.markdown(tables, notes), nl=False)


if __name__ == "__main__":
    command.run(main, "python -m bench", FAILURES)
