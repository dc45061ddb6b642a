"""Compare the request time that Weir estimates with the request time that real brokers measure (JMX).

Each workload runs twice: directly at the broker, to compare the broker's figures with the estimates of the
cost model, and through Weir, to compare them with the charges of Weir. With `--measure`, write the tables of
request costs instead, such as those in `quotas/costs/`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from bench import command, document, render
from bench.report import Table
from bench.request_time import comparing, costs_file, measuring, report
from bench.request_time.book import Book
from bench.request_time.comparing import Compared
from bench.request_time.judge import Kind
from bench.request_time.loop import LoopError
from bench.request_time.stand import VERSIONS, Stand, StandError, standing
from bench.request_time.topics import TopicsError
from bench.request_time.truth import TruthError
from bench.request_time.workloads import QUICK, WORKLOADS, Workload
from bench.targets import TargetError
from tests.kafka import ClusterError, JarError, JavaMissingError
from weir.quotas.costs.request_costs import CostsError, CostTable, parse, shipped

FAILURES: Final = (
    *(StandError, TopicsError, TruthError, LoopError, TargetError, CostsError, document.DocumentError),
    *(ClusterError, JarError, JavaMissingError, OSError),
)
SECONDS: Final = 2.0
QUICK_SECONDS: Final = 1.0


@click.command(help=__doc__)
@click.option("--brokers", default="", help=f"Some of {', '.join(VERSIONS)}, joined by commas; default: all.")
@click.option("--workloads", default="", help="Names of workloads, joined by commas; default: all.")
@click.option("--ways", default="", help=f"Some of {', '.join(comparing.WAYS)}; default: both.")
@click.option(
    "--seconds", type=click.FloatRange(0.1), help=f"Duration (s) of a measurement.  [default: {SECONDS:g}]"
)
@click.option("--quick", is_flag=True, help=f"Measure fewer workloads, {QUICK_SECONDS:g} s each.")
@click.option("--apis", is_flag=True, help="Also show the figures of each API.")
@click.option(
    "--measure", is_flag=True, help="Measure the costs of requests instead, and write tables of them."
)
@click.option(
    "--costs",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory of tables of costs (X.Y.toml), read instead of the shipped ones; written with --measure.",
)
@click.option(
    "--document",
    "page",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Markdown page whose figures are replaced, such as docs/background/request-time.md.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="File for all figures.")
def main(
    brokers: str,
    workloads: str,
    ways: str,
    seconds: float | None,
    quick: bool,
    apis: bool,
    measure: bool,
    costs: Path | None,
    page: Path | None,
    json_file: Path | None,
) -> None:
    versions = command.chosen(brokers, VERSIONS, "--brokers")
    names = command.chosen(workloads, [workload.name for workload in WORKLOADS], "--workloads")
    chosen = [w for w in WORKLOADS if w.name in names and (not quick or workloads or w.name in QUICK)]
    seconds = seconds or (QUICK_SECONDS if quick else SECONDS)
    how = [
        comparing.How(seconds, command.chosen(ways, comparing.WAYS, "--ways"), _file(costs, version))
        for version in versions
    ]
    if page is not None:
        document.check(page)
    kept, compared, failed = list[dict[str, Any]](), list[Compared](), False
    kinds = {workload.name: comparing.kind_of(workload) for workload in chosen}
    with command.progress() as say:
        for version, each in zip(versions, how, strict=True):
            try:
                with standing(version) as stand:
                    if measure:
                        kept.append(_measure(stand, seconds, costs, say))
                    else:
                        compared.append(_compare(stand, chosen, each, say))
            except FAILURES as error:
                failed = True
                click.echo(f"error: {version}: {error}", err=True)
                continue
            if not measure:
                _show(report.tables(compared[-1], apis=apis), report.notes(compared[-1], kinds))
                kept.append(report.as_json(compared[-1], kinds))
            if json_file is not None:
                json_file.write_text(json.dumps(kept, indent=1) + "\n")
    if compared:
        _summarize(compared, kinds, page)
    if failed:
        sys.exit(1)


def _summarize(compared: Sequence[Compared], kinds: Mapping[str, Kind], page: Path | None) -> None:
    tables = [report.overview(compared)]
    notes = [note for each in compared for note in report.notes(each, kinds)]
    if page is not None:
        document.put(page, render.markdown([report.ranges(compared)], []))
    if len(compared) > 1:
        _show(tables, notes)


def generation_of(version: str) -> str:
    """Return the part X.Y of a Kafka version X.Y.Z; it names the table of request costs."""
    return version.rpartition(".")[0]


def _measure(stand: Stand, seconds: float, costs: Path | None, say: comparing.Say) -> dict[str, Any]:
    table, seen = measuring.measure(stand, seconds, say)
    text = costs_file.write(table)
    if costs is not None:
        (costs / f"{generation_of(stand.version)}.toml").write_text(text)
    else:
        click.echo(text)
    _show([report.costs(shipped(generation_of(stand.version)), table)], [])
    return {"broker": stand.version, "seen": [msgspec.to_builtins(found) for found in seen]}


def _compare(stand: Stand, chosen: Sequence[Workload], how: comparing.How, say: comparing.Say) -> Compared:
    measuring.warm_up(stand, Book(stand.broker_versions), say)
    return comparing.compare(stand, chosen, _table(how.costs, stand.version), how, say)


def _file(costs: Path | None, version: str) -> Path | None:
    return None if costs is None else costs / f"{generation_of(version)}.toml"


def _table(costs: Path | None, version: str) -> CostTable:
    base = shipped(generation_of(version))
    if costs is None:
        return base
    return parse(costs.read_text(), frozenset(base.apis) | _known()).over(base)


def _known() -> frozenset[str]:
    from weir.calibration.frames import kafka_name
    from weir.protocol import ApiKey

    return frozenset(map(kafka_name, ApiKey))


def _show(tables: Sequence[Table], notes: Sequence[str]) -> None:
    if sys.stdout.isatty():
        render.terminal(Console(), tables, notes)
    else:
        click.echo(render.markdown(tables, notes))


if __name__ == "__main__":
    command.run(main, "python -m bench.request_time", FAILURES)
