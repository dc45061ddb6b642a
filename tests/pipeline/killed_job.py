"""A job that kills itself and its JVM: `killed_job.py TABLE WHEN NUMBER -- ARGUMENTS OF weir`.

NUMBER counts the writes of the table. WHEN is `after` that write, or `during`: soon after it begins.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from itertools import count
from typing import TYPE_CHECKING, Final, NoReturn

from weir.cli.main import weir
from weir.pipeline import lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter

DURING_S: Final = 1.0
"""Time (s) from the beginning of a write; it takes three, roughly."""


def die() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("still alive")


def die_at(table: str, when: str, number: int) -> None:
    """Let the process end during or after the chosen one of the writes of the table."""
    save, writes = lake._save, count(1)

    def dying_save(writer: DataFrameWriter, path: str) -> None:
        if path.rpartition("/")[2] != table or next(writes) != number:
            return save(writer, path)
        if when == "during":
            threading.Timer(DURING_S, die).start()
        save(writer, path)
        if when == "after":
            die()
        return None

    lake._save = dying_save


def die_with_parent() -> NoReturn:
    """Die when the standard input ends, which the parent's end closes."""
    os.read(0, 1)  # sys.stdin.read would hold a lock that the interpreter needs to end
    die()


if __name__ == "__main__":
    threading.Thread(target=die_with_parent, daemon=True).start()
    table, when, number = sys.argv[1:4]
    die_at(table, when, int(number))
    weir(sys.argv[5:])
