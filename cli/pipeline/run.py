"""Run the jobs of `weir pipeline`: common options, a Spark session with progress, the outcome's output."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
import msgspec
from rich.console import Console

from weir.cli.exits import CommandError, StoppedError
from weir.cli.pipeline.metrics import JobRun, measured, metrics_option, newest
from weir.cli.progress import Bar
from weir.cli.quantity import Quantity
from weir.cli.quotas.show import clean, columns
from weir.pipeline.jars import JARS, S3, loading, provided
from weir.pipeline.outcome import Listing, Outcome, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

C = TypeVar("C", bound=Callable[..., object])

LOOK_S: Final = 0.5
"""Time (s) between two updates of the progress line on the terminal."""
PATTERN: Final = "*?[]{}\\"
MAKES_LAKE: Final = "ingest"
"""Name of the job that creates the lake, the directory with the pipeline's tables."""
NEEDED: Final = ("pyspark", "pandas", "pyarrow", "polars")
SHARED: Final = f"{__name__}.session"
"""Key of a Spark session that several jobs share, in the meta data of their contexts."""


def job_options(command: C) -> C:
    """Return the command with the options `--lake`, `--master`, `--driver-memory`, `--jars`, `--metrics-file`
    and `--json`.

    The command does not get the values of `--driver-memory`, `--jars` and `--metrics-file`: `run_job` takes
    them from the context.
    """
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
            help="The Spark master; sc://HOST:PORT: Spark Connect. [default: spark-submit's, else local[*]]",
        ),
        click.option(
            "--driver-memory",
            metavar="SIZE",
            type=Quantity("bytes", 512 << 20, whole=True),
            default="2GiB",
            show_default=True,
            expose_value=False,
            callback=_memory,
            help="Heap of Spark's driver. Under spark-submit, use its own option.",
        ),
        click.option(
            "--jars",
            multiple=True,
            metavar="FILE",
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=_jars,
            help="A jar for Spark, instead of the locked ones; repeatable. "
            "[default: fetched once from Maven Central]",
        ),
        metrics_option,
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def cluster_option(command: C) -> C:
    option = click.option(
        "--cluster",
        default="default",
        show_default=True,
        callback=_cluster,
        help="Name of the Kafka cluster that the records are of; a lake may have several.",
    )
    return option(command)


def retention_option(command: C) -> C:
    """Return the command with the option `--retention-days`, None for no limit."""
    option = click.option(
        "--retention-days",
        type=click.IntRange(1),
        envvar="WEIR_RETENTION_DAYS",
        show_envvar=True,
        help="Number of days for which records are kept. [default: for ever]",
    )
    return option(command)


def _cluster(_context: click.Context, _option: click.Parameter, name: str) -> str:
    """Return the name of the cluster. Raises CommandError if it could not be part of a path."""
    if not re.fullmatch(r"[\w.-]+", name):
        raise CommandError(f"--cluster {clean(name)}: use letters, digits, and . _ - only")
    return name


def _memory(context: click.Context, _option: click.Parameter, size: int) -> None:
    _settings(context)["spark.driver.memory"] = f"{size >> 20}m"


def _jars(context: click.Context, _option: click.Parameter, brought: tuple[Path, ...]) -> None:
    """Note the jars to load. Raises CommandError if one does not exist, or its path has a comma."""
    try:
        _settings(context).update(loading(provided(brought)) if brought else {})
    except PipelineError as error:
        raise CommandError(str(error)) from None


def _settings(context: click.Context) -> dict[str, str]:
    """Return the Spark settings that the options of this command ask for."""
    settings: dict[str, str] = context.meta.setdefault(f"{__name__}.settings", {})
    return settings


def _root(_context: click.Context, _option: click.Parameter, root: str) -> str:
    """Return the option --lake, the root of the tables, as an absolute path or a URL: Delta finds no table by
    a relative path. Raises CommandError if the path is empty, or has characters that Spark would take for a
    pattern.
    """
    if not root:
        raise CommandError("--lake is empty: name a directory")
    if set(root) & set(PATTERN):
        raise CommandError(
            f"{clean(root)}: Spark takes such a name for a pattern, and reads other directories: use a lake "
            f"without any of {' '.join(PATTERN)} in its path"
        )
    return root if ":" in root else str(Path(root).absolute())


def _check_lake(root: str) -> None:
    """Raise CommandError if the lake (the directory of the tables) is missing on this machine, before Spark
    takes seconds to start. A lake whose path is a URL is not checked, because only Spark can reach it.
    """
    if "://" not in root and not Path(root.removeprefix("file:")).is_dir():
        raise CommandError(f"--lake {clean(root)}: no such directory; weir pipeline ingest creates a lake")


def run_job(
    name: str,
    job: Callable[[SparkSession], Outcome],
    *,
    master: str | None,
    as_json: bool,
) -> None:
    """Run a job in a Spark session of its own, and print its outcome. Raises CommandError if the job
    fails.
    """
    context = click.get_current_context()
    with measured(name, context) as run:
        outcome = _run(run, job, master, context)
    show(outcome, as_json=as_json)


def run_jobs(contexts: Sequence[click.Context]) -> None:
    """Run several jobs one after the other, in one session with the options of the first. Raises CommandError
    for the first job that fails.
    """
    _check_packages()
    first = contexts[0]
    with _opened("pipeline", first.params["master"] or _master(), first) as spark:
        for context in contexts:
            context.meta[SHARED] = spark
            with context:
                context.command.invoke(context)


def _run(
    run: JobRun, job: Callable[[SparkSession], Outcome], master: str | None, context: click.Context
) -> Outcome:
    """Run a job, note and return its outcome. Raises CommandError if the job fails."""
    _check_packages()
    master = master or _master()
    if run.job != MAKES_LAKE and master is not None and master.startswith("local"):
        _check_lake(context.params["root"])
    with _opened(run.job, master, context) as spark:
        outcome = in_session(run.job, spark, job)
        run.newest = newest(run.job, context, spark)
    run.outcome = outcome
    return outcome


@contextmanager
def _opened(name: str, master: str | None, context: click.Context) -> Iterator[SparkSession]:
    """Yield the Spark session that several jobs share, or one of this job for the block. Raises CommandError
    for Spark's and the pipeline's errors in the block.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from weir.pipeline.spark import session, submitted

    try:
        if (shared := context.meta.get(SHARED)) is not None:
            yield shared
            return
        with session(name, master=master, settings={} if submitted() else _with_s3(context)) as spark:
            yield spark
    except PipelineError as error:
        raise CommandError(str(error)) from None
    except (PySparkException, Py4JError) as error:
        raise CommandError(f"{name}: Spark failed: {_first_line(error)}") from None
    except ConnectionError:
        raise CommandError(f"{name}: Spark's Java has died: see what it printed above") from None
    except KeyboardInterrupt:
        raise StoppedError(f"{name}: interrupted") from None


def _with_s3(context: click.Context) -> dict[str, str]:
    """Return the Spark settings of this command, with the jars for S3 if an option is a path on S3 and the
    command brings no jars. Raises PipelineError if a download fails.
    """
    settings = _settings(context)
    s3 = any(S3 in str(value) for value in context.params.values())
    return {**loading(provided(s3=True)), **settings} if s3 and JARS not in settings else settings


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
    """Print a table. Lines are never cut to the terminal's width, because programs may read the output."""
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


def _check_packages() -> None:
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        raise CommandError(
            f"the pipeline needs {', '.join(missing)}: pip install '.[pipeline]' in a checkout"
        )


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
    from pyspark.errors import PySparkAttributeError

    try:
        _look(name, spark, bar, over)
    except (Py4JError, OSError, PySparkAttributeError):
        return  # Java has ended, and the job reports that; or Spark Connect, which has no tracker


def _look(name: str, spark: SparkSession, bar: Bar, over: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(LOOK_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        done, total = sum(stage.numCompletedTasks for stage in running), sum(s.numTasks for s in running)
        bar.say(done, total, f"{name}: {done} of {total} tasks" if total else name)
