"""Kill jobs of the pipeline (-9, with their JVMs) at chosen places, and read their output meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final, NamedTuple, TypeVar

from pyspark.sql import functions as fn

from tests.pipeline.spark_cluster import FEW_ROWS
from weir.pipeline import tables
from weir.pipeline.lake import latest, read
from weir.pipeline.rollup.columns import ROLLUP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
Rows = tuple[str, ...]
"""All rows of a table as JSON, sorted."""
PAUSES: Final = 5.0
"""Time between two looks / time of a look, which takes the cores from the job."""
COLUMNS: Final = {
    "usage": tables.USAGE,
    "rejected": tables.REJECTED,
    "rollup": ROLLUP,
    "recommendation": tables.RECOMMENDATION,
    "replay": tables.REPLAY,
}
"""Columns of the tables."""
_ROOT: Final = Path(__file__).parents[2]


class Kill(NamedTuple):
    """Table and time of a kill; `killed_job` describes them."""

    table: str
    when: str
    number: int = 1


def seen_until_killed(kill: Kill, look: Callable[[], T], job: str, *options: str) -> list[T]:
    """Run `weir pipeline JOB OPTIONS` with a kill, and call `look` in a loop. Return its different results,
    also those from before and after the run, in order. Fails if the job is not killed, or prints anything.
    """
    states = [look()]
    with TemporaryFile("w+") as errors, _begun(kill, errors, job, *options) as process:
        while process.poll() is None:
            began_s = time.monotonic()
            states.append(look())
            with suppress(subprocess.TimeoutExpired):
                process.wait(PAUSES * (time.monotonic() - began_s))
        output, _ = process.communicate()
        errors.seek(0)
        assert (process.returncode, output) == (-signal.SIGKILL, ""), errors.read()
    return without_repetitions([*states, look()])


def _begun(kill: Kill, errors: IO[str], job: str, *options: str) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("killed_job.py")
    common = ("--master", "local[2]", "--driver-memory", "1GiB", "--json")
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, kill), "--", "pipeline", job, *common, *options],
        stdin=subprocess.PIPE,  # its end tells that this process has ended
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
        env={"SPARK_CONF_DIR": str(FEW_ROWS), **os.environ, "PYTHONPATH": str(_ROOT)},
    )


def without_repetitions(states: Iterable[T]) -> list[T]:
    return [state for state, _ in groupby(states)]


def is_part(states: Iterable[T], of: Iterable[T]) -> bool:
    rest = iter(of)
    return all(state in rest for state in states)


def content(spark: SparkSession, path: str, columns: StructType, version: int | None = None) -> Rows:
    """Return the rows of a table without times of runs and paths of files."""
    rows = (
        read(spark, path, columns, version)
        .drop("taken_ms", "source")
        .select(fn.to_json(fn.struct("*")).alias("row"))
    )
    return tuple(sorted(row["row"] for row in rows.collect()))


def versions(spark: SparkSession, path: str, columns: StructType, first: int) -> Sequence[Rows]:
    """Return the content of the table at `path` in each version from `first`."""
    last = latest(spark, path)
    assert last is not None
    return [content(spark, path, columns, version) for version in range(first, last + 1)]
