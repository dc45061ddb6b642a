"""A job that kills itself and its JVM: `killed_job.py PLACE WHEN NUMBER SEED -- ARGUMENTS OF weir`.

PLACE is the name of a table, the first word of an SQL statement, or `file`: the job's output. NUMBER counts
the writes there. WHEN is `before` or `after` that write, or `during`: at a time chosen by SEED after the
write of a table begins, or when a part of the file, chosen by SEED, is written. If PLACE is `job`, SEED
chooses a time, at most WHEN CPU seconds of job and JVM after the job begins (so a busy machine does not
move it), and three earlier times at which an executor of one of $WORKERS is killed. If PLACE is `executor`,
only executors are.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pyspark.sql import DataFrame, SparkSession

from tests.demo.process_table import children_of, stats
from weir.cli.main import weir
from weir.cli.pipeline import run
from weir.pipeline import lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrameWriter

T = TypeVar("T")
EXECUTORS = 3
"""Number of executors that are killed before a driver."""
MOMENT_S = 3.0
"""Time (s), roughly, that a write takes."""


def die() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("still alive")


class Death:
    """Ends the process before, during or after the chosen one of the writes at `place`."""

    def __init__(self, place: str, when: str, number: int, seed: int) -> None:
        self.place, self.when = place, when
        self._left, self.random = number, random.Random(seed)

    def around(self, place: str, write: Callable[[], T]) -> T:
        self._left -= place == self.place
        if place != self.place or self._left:
            return write()
        if self.when == "before":
            die()
        if self.when == "during":
            threading.Timer(self.random.uniform(0, MOMENT_S), die).start()
        written = write()
        if self.when == "after":
            die()
        return written


def patch_tables(death: Death) -> None:
    save, sql = lake._save, SparkSession.sql

    def dying_save(writer: DataFrameWriter, path: str) -> None:
        death.around(path.rpartition("/")[2], lambda: save(writer, path))

    def dying_sql(spark: SparkSession, query: str, *arguments: Any, **named: Any) -> DataFrame:
        return death.around(query.split()[0], lambda: sql(spark, query, *arguments, **named))

    lake._save = dying_save
    SparkSession.sql = dying_sql  # type: ignore[assignment, method-assign]  # only this process does


def patch_file(death: Death) -> None:
    """Patch the functions that `cli.output_file` writes with."""
    fdopen, replace = os.fdopen, Path.replace

    def dying_fdopen(fd: int, mode: str = "r", **named: Any) -> Any:
        file = fdopen(fd, mode, **named)

        def write_part(lines: Iterable[str]) -> NoReturn:
            text = "".join(lines)
            file.write(text[: death.random.randrange(1, len(text))])
            file.flush()
            die()

        if mode == "w":
            file.writelines = write_part  # type: ignore[assignment, method-assign]  # of this file only
        return file

    def dying_replace(path: Path, target: Path) -> Path:
        return death.around("file", lambda: replace(path, target))

    if death.when == "during":
        os.fdopen = dying_fdopen  # type: ignore[assignment]  # only this process does
    Path.replace = dying_replace  # type: ignore[assignment, method-assign]  # only this process does


def patch_job(death: Death) -> None:
    """Patch the function that runs a job in a Spark session."""
    in_session = run.in_session
    dies_s = death.random.uniform(0, float(death.when))

    def dying_job(*arguments: Any) -> Any:
        for _ in range(EXECUTORS):
            after_cpu(death.random.uniform(0, dies_s), lambda: kill_executor(death.random))
        if death.place == "executor":
            return in_session(*arguments)
        after_cpu(dies_s, die)
        in_session(*arguments)
        die()

    run.in_session = dying_job  # type: ignore[assignment]  # only this process does


def begin_timer(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def after_cpu(seconds: float, call: Callable[[], None]) -> None:
    """Call the function when this process group has used that much more CPU time (s)."""
    end_s = cpu_s() + seconds

    def wait() -> None:
        while cpu_s() < end_s:
            time.sleep(0.2)
        call()

    begin_timer(0, wait)


def cpu_s() -> float:
    """Return the CPU time (s) of the running processes of this process's group."""
    ticks = [int(stat[13]) + int(stat[14]) for stat in stats() if stat[4] == str(os.getpgrp())]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def kill_executor(draw: random.Random) -> None:
    """Kill an executor of one of the workers, as soon as one runs; nothing if there are no workers."""
    workers = [int(pid) for pid in os.environ.get("WORKERS", "").split()]
    while workers:
        if executors := sorted(pid for worker in workers for pid in children_of(worker)):
            os.kill(draw.choice(executors), signal.SIGKILL)
            print("killed an executor", file=sys.stderr, flush=True)
            return
        time.sleep(0.1)


def die_with_parent() -> NoReturn:
    """Die when the standard input ends, which the parent's end closes."""
    os.read(0, 1)  # sys.stdin.read would hold a lock that the interpreter needs to end
    die()


if __name__ == "__main__":
    begin_timer(0, die_with_parent)
    place, when, number, seed = sys.argv[1:5]
    patch = {"file": patch_file, "job": patch_job, "executor": patch_job}.get(place, patch_tables)
    patch(Death(place, when, int(number), int(seed)))
    weir(sys.argv[6:])
