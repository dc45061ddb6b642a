"""`weir pipeline ingest` that kills itself and its JVM: `killed_ingest.py POINT BATCH SEED -- OPTIONS`.

The process dies in the BATCHth batch of this run, at POINT: `written` (after the records, before the ledger's
row), `entered` (after the row, before Spark's checkpoint), or `moment`: at a time chosen by SEED, after the
first table began to be written.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from weir.cli.main import weir
from weir.pipeline import tables
from weir.pipeline.ingest.batch import Batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MOMENT_S = 3.0
"""Time (s), roughly, that a batch takes to write."""


def die() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("still alive")


def arrange(point: str, number: int, seed: int) -> None:
    """Patch ingest so that the process dies at `point` of the batch `number`."""
    begun = 0
    write, enter, replace = Batches._write, Batches._enter, tables.replace

    def counting_write(self: Batches, rows: DataFrame, before: DataFrame, batch: int) -> Row:
        nonlocal begun
        begun += 1
        return write(self, rows, before, batch)

    def dying_enter(self: Batches, rows: DataFrame, before: DataFrame, counted: Row, batch: int) -> None:
        if begun == number and point == "written":
            die()
        enter(self, rows, before, counted, batch)
        if begun == number and point == "entered":
            die()

    def dying_replace(rows: DataFrame, path: str, *by: str) -> None:
        if begun == number and point == "moment":
            threading.Timer(random.Random(seed).uniform(0, MOMENT_S), die).start()
        replace(rows, path, *by)

    Batches._write = counting_write  # type: ignore[method-assign]  # only this process does
    Batches._enter = dying_enter  # type: ignore[method-assign]  # as above
    tables.replace = dying_replace


if __name__ == "__main__":
    point, number, seed = sys.argv[1:4]
    arrange(point, int(number), int(seed))
    weir(sys.argv[5:])
