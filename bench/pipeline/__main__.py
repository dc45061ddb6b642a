"""Measure the number of usage records that the pipeline's jobs process per second, for several numbers of
records.

The records are generated, and are the same in every run. Each job runs like `weir pipeline`. For comparison,
polars and DuckDB compute the roll-up from the same files; their result must equal Spark's.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
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
from bench.pipeline.tables import write_delta, write_json
from bench.report import NOTHING, QUIET, Table

Say = Callable[[str], None]


class Cost(NamedTuple):
    """Time (s) of a job, and the CPU time (s) of all its processes, 0 if unknown."""

    seconds: float
    cpu_s: float = 0.0


Cells = dict[tuple[str, int], Cost]
"""Costs by row of the table and number of records."""
MILLION: Final = 1_000_000
FAILURES: Final = (document.DocumentError, OSError)


@click.command(help=__doc__)
@click.option("--records", default="1,3,10", show_default=True, help="Numbers of records, in millions.")
@click.option("--jobs", "names", default=",".join(JOBS), show_default=True, help="Jobs to measure.")
@click.option("--entities", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@click.option("--driver-memory", default="4GiB", show_default=True, help="Size of Spark's heap.")
@click.option("--timeout-s", type=float, default=600.0, show_default=True, help="Time limit (s) of each job.")
@click.option(
    "--directory", type=click.Path(path_type=Path, file_okay=False), help="Directory for temporary files."
)
@click.option("--document", "page", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="File for all figures.")
def main(
    records: str,
    names: str,
    entities: int,
    master: str,
    driver_memory: str,
    timeout_s: float,
    directory: Path | None,
    page: Path | None,
    json_file: Path | None,
) -> None:
    if page is not None:
        document.check(page)
    sizes = [round(float(size) * MILLION) for size in records.split(",")]
    chosen = command.chosen(names, JOBS, "--jobs") if names else []
    load, cells, notes = os.getloadavg()[0], Cells(), list[str]()
    with command.progress() as say:
        for size in sizes:
            with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=directory) as root:
                stand = Stand(Path(root), master, driver_memory, timeout_s)
                notes += _measure(stand, Plan(records=size, entities=entities), chosen, cells, say)
    tables = [_table(sizes, chosen, cells), _cpu_table(sizes, cells)]
    notes = [*_conditions(load, driver_memory, master), *notes]
    click.echo(render.markdown(tables, notes))
    if page is not None:
        document.put(page, render.markdown(tables, notes))
    if json_file is not None:
        found = [{"row": row, "records": size, **c._asdict()} for (row, size), c in cells.items()]
        json_file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def _measure(stand: Stand, plan: Plan, chosen: Sequence[str], cells: Cells, say: Say) -> list[str]:
    """Measure all rows with one number of records, and add the times to `cells`. Return errors as notes
    for readers.
    """
    notes = list[str]()
    for row in [
        "Delta table, generated",
        *(["JSON lines, generated"] if "ingest" in chosen else []),
        *chosen,
    ]:
        say(f"{plan.records:,} records: {row}")
        try:
            cells[row, plan.records] = _cost(stand, plan, row)
        except JobError as error:
            notes.append(f"{row} of {plan.records:,} records: {error}")
    return notes


def _cost(stand: Stand, plan: Plan, row: str) -> Cost:
    if row in JOBS:
        return Cost(*jobs.run_job(stand, row))
    began = datetime.now(UTC)
    if row.startswith("JSON"):
        write_json(plan, stand.lines)
    else:
        write_delta(plan, stand.lake / "usage")
    return Cost((datetime.now(UTC) - began).total_seconds())


def _table(sizes: Sequence[int], chosen: Sequence[str], cells: Mapping[tuple[str, int], Cost]) -> Table:
    rows = list(dict.fromkeys(row for row, _size in cells)) or list(chosen)
    head = ["", *(f"{size / MILLION:g} M records" for size in sizes), "most ÷ least, time"]
    lines = []
    for row in rows:
        times = [cost.seconds if (cost := cells.get((row, size))) else None for size in sizes]
        figures = [_figure(size, seconds) for size, seconds in zip(sizes, times, strict=True)]
        lines.append([row, *figures, _growth(times)])
    return Table("Seconds, and records per second", head, lines)


def _cpu_table(sizes: Sequence[int], cells: Mapping[tuple[str, int], Cost]) -> Table:
    rows = dict.fromkeys(row for (row, _size), cost in cells.items() if cost.cpu_s)
    head = ["", *(f"{size / MILLION:g} M records" for size in sizes)]
    lines = [
        [
            row,
            *(f"{cells[row, size].cpu_s:,.1f}" if (row, size) in cells else NOTHING for size in sizes),
        ]
        for row in rows
    ]
    return Table("Seconds of CPU, with the start of Spark or Python", head, lines)


def _figure(records: int, seconds: float | None) -> str:
    return NOTHING if not seconds else f"{seconds:,.1f} s, {records / seconds:,.0f}/s"


def _growth(times: Sequence[float | None]) -> str:
    first, last = times[0], times[-1]
    return NOTHING if not first or not last else f"{last / first:.1f}"


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
