"""Run the jobs of `weir pipeline`: common options, a Spark session with progress, the outcome's output."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
import msgspec
from rich.console import Console

from weir.cli.exits import CommandError, StoppedError
from weir.cli.progress import Bar
from weir.cli.quotas.show import clean, columns
from weir.pipeline.outcome import Listing, Outcome, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

C = TypeVar("C", bound=Callable[..., object])

LOOK_S: Final = 0.5
"""Time (s) between two updates of the progress line on the terminal."""
PATTERN: Final = "*?[]{}\\"
MAKES_LAKE: Final = "ingest"
"""Name of the job that creates the lake."""
NEEDED: Final = ("pyspark", "pandas", "pyarrow")


def job_options(command: C) -> C:
    """Return the command with the options `--lake`, `--master` and `--json`."""
    options = (
        click.option(
            "--lake",
            "root",
            metavar="PATH",
            required=True,
            envvar="WEIR_LAKE",
            callback=_root,
            show_envvar=True,
            help="The root of the pipeline's tables: a directory, or any URL that Spark can write to.",
        ),
        click.option(
            "--master",
            metavar="URL",
            default=None,
            help="The Spark master. [default: spark-submit's, else local[*]]",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _root(_context: click.Context, _option: click.Parameter, root: str) -> str:
    """Return the option --lake, the root of the tables. Raises CommandError if the path is empty, or has
    characters that Spark would take for a pattern.
    """
    if not root:
        raise CommandError("--lake is empty: name a directory")
    if set(root) & set(PATTERN):
        raise CommandError(
            f"{clean(root)}: Spark takes such a name for a pattern, and reads other directories: use a lake "
            f"without any of {' '.join(PATTERN)} in its path"
        )
    return root


def _check_lake(root: str) -> None:
    """Raise CommandError if a lake on this machine is missing, before Spark takes seconds to start. Only
    Spark knows lakes with a URL; on a cluster, also a plain path may be on another file system.
    """
    if "://" not in root and not Path(root.removeprefix("file:")).is_dir():
        raise CommandError(f"--lake {clean(root)}: no such directory; weir pipeline ingest creates a lake")


def run_job(
    name: str,
    job: Callable[[SparkSession], Outcome],
    *,
    master: str | None,
    as_json: bool,
    settings: dict[str, str] | None = None,
) -> None:
    """Run a job in a Spark session of its own, and print its outcome. Raises CommandError if the job
    fails.
    """
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        raise CommandError(
            f"the pipeline needs {', '.join(missing)}: pip install '.[pipeline]' in a checkout"
        )
    master = master or _master()
    if name != MAKES_LAKE and master is not None and master.startswith("local"):
        _check_lake(click.get_current_context().params["root"])
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from weir.pipeline.spark import session

    try:
        with session(name, master=master, settings=settings) as spark:
            outcome = in_session(name, spark, job)
    except PipelineError as error:
        raise CommandError(str(error)) from None
    except (PySparkException, Py4JError) as error:
        raise CommandError(f"{name}: Spark failed: {_first_line(error)}") from None
    except ConnectionError:
        raise CommandError(f"{name}: Spark's Java has died: see what it printed above") from None
    except KeyboardInterrupt:
        raise StoppedError(f"{name}: interrupted") from None
    show(outcome, as_json=as_json)


def _first_line(error: Exception) -> str:
    """Return the first informative line of Spark's error, without Java's stack traces."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith(
        "An error occurred while calling"
    ):  # the first line has no cause
        causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
        return [lines[1], *causes][-1]
    return lines[0] if lines else type(error).__name__


def in_session(name: str, spark: SparkSession, job: Callable[[SparkSession], Outcome]) -> Outcome:
    """Run one job and show its progress; return its outcome with the duration. Raises the job's
    exceptions.
    """
    with _progress(name, spark):
        began_s = time.monotonic()
        return replace(job(spark), seconds=round(time.monotonic() - began_s, 3))


def show(outcome: Outcome, *, as_json: bool) -> None:
    """Print a job's outcome for people: counts and paths of its inputs and outputs, tables and remarks."""
    if as_json:
        click.echo(msgspec.json.encode(asdict(outcome)))
        return
    rows = [
        (title, f"{count:,} {what}", outcome.where.get(what, ""))
        for title, counts in (("read", outcome.read), ("wrote", outcome.wrote))
        for what, count in counts.items()
    ]
    counted = {*outcome.read, *outcome.wrote}
    rows += [("", what, path) for what, path in outcome.where.items() if what not in counted]
    console = Console(soft_wrap=True)
    for line in columns(rows) if rows else ():  # paths whole, in pipes too
        console.print(line, markup=False, highlight=False)
    for listing in outcome.listings:
        _list(console, listing)
    if outcome.listings:
        console.print()
    for note in outcome.notes:
        console.print(note, markup=False)
    console.print(f"{outcome.job}: done in {outcome.seconds:.1f} s", markup=False)


def _list(console: Console, listing: Listing) -> None:
    """Print a table with columns as wide as needed, also on narrow terminals, because programs read the
    output through pipes.
    """
    cells = [listing.columns, *([_shown(cell) for cell in row] for row in listing.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_number = [
        any(isinstance(cell, int | float) for cell in column) for column in zip(*listing.rows, strict=True)
    ] or [False] * len(widths)
    console.print(f"\n{listing.title}", markup=False)
    for row in cells:
        aligned = zip(row, widths, is_number, strict=True)
        line = "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in aligned)
        console.print(line.rstrip(), markup=False, highlight=False)


def _shown(cell: str | float | None) -> str:
    if cell is None:
        return "-"
    return clean(cell) if isinstance(cell, str) else f"{cell:,}"


def _master() -> str | None:
    """Return the master URL for Spark; None under spark-submit, which chooses the master itself."""
    from weir.pipeline.spark import submitted

    return None if submitted() else "local[*]"


@contextmanager
def _progress(name: str, spark: SparkSession) -> Iterator[None]:
    """Show Spark's progress on a terminal while the block runs."""
    over = threading.Event()
    with Bar() as bar:
        watcher = threading.Thread(target=_watch, args=(name, spark, bar, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _watch(name: str, spark: SparkSession, bar: Bar, over: threading.Event) -> None:
    from py4j.protocol import Py4JError

    try:
        _look(name, spark, bar, over)
    except (Py4JError, OSError):
        return  # Java has ended: the job reports that


def _look(name: str, spark: SparkSession, bar: Bar, over: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(LOOK_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        done, total = sum(stage.numCompletedTasks for stage in running), sum(s.numTasks for s in running)
        bar.say(done, total, f"{name}: {done} of {total} tasks" if total else name)
