"""`weir pipeline ingest` is killed (-9, with its JVM) repeatedly, and loses or doubles no record.

Each file is a batch. Meanwhile the test reads the tables in a loop, and sees whole batches only.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as fn

from tests.pipeline.killed import Kill, seen_until_killed
from tests.pipeline.usage_files import NOON_MS, clients, put, usage
from weir.pipeline import tables
from weir.pipeline.ingest.job import ingest
from weir.pipeline.ingest.sources import Directory
from weir.pipeline.lake import Lake, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]  # Java starts for every kill

FILES = 6
ROWS = 1200
PADDING = "x" * 900
"""Part of a client-id: makes each file larger than the 1 MB of a batch, so that each file is a batch."""
DAY_MS = 86_400_000


def names(file: int) -> list[str]:
    return [f"{PADDING}{file}-{row}" for row in range(ROWS)]


def write(directory: Path) -> None:
    for file in range(FILES):
        # The batches are of different days, and each has records of two days.
        lines = [usage(NOON_MS + (file + row % 2) * DAY_MS, name) for row, name in enumerate(names(file))]
        name = f"usage-weir-1-{file:08d}.jsonl"
        put(directory, name, *lines, b"bad %d" % file)
        os.utime(directory / name, (1_700_000_000 + file, 1_700_000_000 + file))


def batches(spark: SparkSession, lake: Lake) -> set[int]:
    """Return the numbers of the files whose records the table has. Fails if it has a part of a file."""
    file = fn.split(fn.substring("client_id", len(PADDING) + 1, 100), "-")[0].cast("int")
    rows = read(spark, lake.usage, tables.USAGE).groupBy(file.alias("file")).count().collect()
    assert {row["count"] for row in rows} <= {ROWS}, "a part of a batch"
    return {row["file"] for row in rows}


def test_ingest_killed_repeatedly_loses_and_doubles_no_record(spark: SparkSession, tmp_path: Path) -> None:
    lake, directory = Lake(str(tmp_path / "lake")), tmp_path / "usage"
    write(directory)
    options = ("--lake", lake.root, "--files", str(directory), "--kind", "usage", "--once")
    seen = [
        state
        for kill in (Kill("usage", "after", 2), Kill("rejected", "after", 2), Kill("usage", "during", 2, 8))
        for state in seen_until_killed(
            kill, lambda: batches(spark, lake), "ingest", *options, "--batch-bytes", "1MiB"
        )
    ]
    assert seen[-1] >= {0, 1, 2}
    assert all(earlier <= later for earlier, later in pairwise(seen))

    outcome = ingest(spark, lake, Directory(str(directory), 1 << 20), kinds=("usage",))
    assert outcome.wrote["usage records"] >= (FILES - len(seen[-1])) * ROWS
    assert clients(spark, lake.usage) == Counter(name for file in range(FILES) for name in names(file))
    bad = read(spark, lake.rejected, tables.REJECTED).select("line").collect()
    assert Counter(row["line"] for row in bad) == Counter(f"bad {file}" for file in range(FILES))
    assert set(ingest(spark, lake, Directory(str(directory), 1 << 20)).read.values()) == {0}
