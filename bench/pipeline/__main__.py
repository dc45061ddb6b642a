"""Measure the time that the pipeline's jobs take for several numbers of usage records.

The records are generated, and are the same in every run. Each job runs like `weir pipeline`. For comparison,
polars and DuckDB compute the roll-up from the same files; their result must equal Spark's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Final, NamedTuple

import click

from bench import command, document, render
from bench.pipeline import jobs
from bench.pipeline.generator import Plan
from bench.pipeline.jobs import JOBS, JobError, Stand
from bench.pipeline.tables import write_json
from bench.report import NOTHING, QUIET, Table


class Cost(NamedTuple):
    """Time (s) of a job, and the CPU time (s) of all its processes."""

    seconds: float
    cpu_s: float


Cells = dict[tuple[str, int], Cost]
"""Costs by job and number of records."""
MILLION: Final = 1_000_000
FAILURES: Final = (document.DocumentError, OSError)


@click.command(help=__doc__)
@click.option("--records", default="1,10,30", show_default=True, help="Numbers of records, in millions.")
@click.option("--jobs", "names", default=",".join(JOBS), show_default=True, help="Jobs to measure.")
@click.option("--entities", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@click.option("--driver-memory", default="4GiB", show_default=True, help="Size of Spark's heap.")
@click.option("--timeout-s", type=float, default=600.0, show_default=True, help="Time limit (s) of each job.")
@click.option(
    "--directory", type=click.Path(path_type=Path, file_okay=False), help="Directory for temporary files."
)
@click.option("--document", "page", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def main(
    records: str,
    names: str,
    entities: int,
    master: str,
    driver_memory: str,
    timeout_s: float,
    directory: Path | None,
    page: Path | None,
) -> None:
    if page is not None:
        document.check(page)
    sizes = [round(float(size) * MILLION) for size in records.split(",")]
    chosen = command.chosen(names, JOBS, "--jobs") if names else []
    load, cells, notes = os.getloadavg()[0], Cells(), list[str]()
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=directory) as root:
            stand = Stand(Path(root), master, driver_memory, timeout_s)
            notes += _measure(stand, Plan(records=size, entities=entities), chosen, cells)
    tables = [_table(sizes, chosen, cells)]
    notes = [*_conditions(load, driver_memory, master), *notes]
    click.echo(render.markdown(tables, notes))
    if page is not None:
        document.put(page, render.markdown(tables, notes))


def _measure(stand: Stand, plan: Plan, chosen: Sequence[str], cells: Cells) -> list[str]:
    """Run all jobs with one number of records, and add their costs to `cells`. Return errors as notes for
    readers.
    """
    notes = list[str]()
    write_json(plan, stand.lines)
    for job in ("ingest", *(job for job in chosen if job != "ingest")):
        command.say(f"{plan.records:,} records: {job}")
        try:
            cells[job, plan.records] = Cost(*jobs.run_job(stand, job))
        except JobError as error:
            notes.append(f"{job} of {plan.records:,} records: {error}")
    return notes


def _table(sizes: Sequence[int], chosen: Sequence[str], cells: Mapping[tuple[str, int], Cost]) -> Table:
    head = ["", *(f"{size / MILLION:g} M records" for size in sizes)]
    lines = [[job, *(_figure(cells.get((job, size))) for size in sizes)] for job in chosen]
    return Table("Elapsed seconds (without the start of Spark or Python), and CPU seconds", head, lines)


def _figure(cost: Cost | None) -> str:
    return NOTHING if cost is None else f"{cost.seconds:,.1f}, {cost.cpu_s:,.1f}"


def _conditions(load: float, driver_memory: str, master: str) -> list[str]:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    versions = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "polars", "duckdb"))
    machine = f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {memory_gb:.0f} GB"
    engines = f"Spark {master} with a heap of {driver_memory}"
    found = [f"{machine}; Python {python_version()}, {versions}; {engines}"]
    if load > QUIET:
        found.append(f"The machine was not quiet: load average {load:.1f} before it began")
    return found


if __name__ == "__main__":
    command.run(main, "python -m bench.pipeline", FAILURES)
