"""Measure Weir with one worker and with two workers, in front of two stub brokers: CPU per request, many
connections, and new connections at a steady rate.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from bench import command, document, render
from bench.load import LoadError
from bench.report import Table
from bench.targets.target import TargetError
from bench.workers import churn, crowd, report, scaling
from weir.proxy.build import build

PARTS: Final = ("scaling", "crowd", "churn")
HURRY_S: Final = 0.5
SECTION: Final = "workers"
"""Name of the section of a page with these figures."""


@click.command(help=__doc__)
@click.option("--parts", default="", help=f"Comma-separated: {', '.join(PARTS)}. Default: all.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option(
    "--seconds", default=2.0, show_default=True, help="Duration (s) of each measurement of scaling."
)
@click.option("--connections", default=10_000, show_default=True, type=click.IntRange(2))
@click.option(
    "--rate", default=1000, show_default=True, type=click.IntRange(1), help="New connections per s."
)
@click.option("--churn-seconds", default=60.0, show_default=True, help="Duration (s) of new connections.")
@click.option(
    "--hurry", is_flag=True, help="Skip the warm-up, to try the benchmark; the figures are worthless."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="File for all figures.")
@click.option(
    "--document",
    "page",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Markdown page whose section of workers is replaced.",
)
def main(
    parts: str,
    rounds: int,
    seconds: float,
    connections: int,
    rate: int,
    churn_seconds: float,
    hurry: bool,
    json_file: Path | None,
    page: Path | None,
) -> None:
    if page is not None:
        document.check(page, SECTION)
    load = os.getloadavg()[0]
    chosen = command.chosen(parts, PARTS, "--parts")
    tables: list[Table] = []
    notes: list[str] = []
    figures: dict[str, list[object]] = {}
    with command.progress() as say:
        if "scaling" in chosen:
            shared = scaling.measure(rounds, seconds, say, hurry=hurry)
            tables.append(report.scaling(shared))
            figures |= {f"{row} {workers}": [*map(asdict, found)] for (row, workers), found in shared.items()}
        if "crowd" in chosen:
            many = crowd.measure(connections, HURRY_S if hurry else crowd.WATCH_S, say)
            tables.append(report.crowd(many))
            figures["crowd"] = [asdict(many)]
        if "churn" in chosen:
            new = {_name(workers): churn.measure(workers, rate, churn_seconds, say) for workers in (1, 2)}
            tables.append(report.churn(new))
            notes = [f"{name}: {_reasons(one)}" for name, one in new.items() if one.failures]
            figures["churn"] = [
                {"name": name, "per_s": one.per_s, "latency_ms": one.latency_ms, "shares": one.shares}
                for name, one in new.items()
            ]
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")
    notes.insert(0, _conditions(load, rounds, seconds))
    if page is not None:
        document.put(page, render.markdown(tables, notes), SECTION)
    if sys.stdout.isatty():
        render.terminal(Console(), tables, notes)
    else:
        click.echo(render.markdown(tables, notes), nl=False)


def _conditions(load: float, rounds: int, seconds: float) -> str:
    """Return the day, the machine and the measurement, as a line under the tables."""
    cores, version = len(os.sched_getaffinity(0)), platform.python_version()
    return (
        f"{datetime.now(tz=UTC):%Y-%m-%d}, {cores} cores, Python {version} ({build()}), {rounds} rounds of "
        f"{seconds:g} s, load average {load:.1f} before"
    )


def _name(workers: int) -> str:
    return "one worker" if workers == 1 else f"{workers} workers"


def _reasons(found: churn.Churn) -> str:
    """Return the reasons of failures, most frequent first."""
    return "; ".join(
        f"{count:,} connections: {reason}" for reason, count in Counter(found.failures).most_common(3)
    )


if __name__ == "__main__":
    command.run(main, "python -m bench.workers", (LoadError, OSError, TargetError, document.DocumentError))
