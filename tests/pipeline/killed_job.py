"""A job that kills itself and its JVM: `killed_job.py PLACE WHEN NUMBER SEED -- ARGUMENTS OF weir`.

PLACE is the name of a table, or the first word of an SQL statement. NUMBER counts the writes there. WHEN is
`after` that write, or `during`: at a time chosen by SEED after it begins.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pyspark.sql import DataFrame, SparkSession

from weir.cli.main import weir
from weir.pipeline import lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrameWriter

T = TypeVar("T")
MOMENT_S = 3.0
"""Time (s), roughly, that a write takes."""


def die() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("still alive")


class Death:
    """Ends the process during or after the chosen one of the writes at `place`."""

    def __init__(self, place: str, when: str, number: int, seed: int) -> None:
        self.place, self.when = place, when
        self._left, self.random = number, random.Random(seed)

    def around(self, place: str, write: Callable[[], T]) -> T:
        self._left -= place == self.place
        if place != self.place or self._left:
            return write()
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


def die_with_parent() -> NoReturn:
    """Die when the standard input ends, which the parent's end closes."""
    os.read(0, 1)  # sys.stdin.read would hold a lock that the interpreter needs to end
    die()


if __name__ == "__main__":
    threading.Thread(target=die_with_parent, daemon=True).start()
    place, when, number, seed = sys.argv[1:5]
    patch_tables(Death(place, when, int(number), int(seed)))
    weir(sys.argv[6:])
