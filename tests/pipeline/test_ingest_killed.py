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

from tests.pipeline.killed import Kill, seen_until_killed
from tests.pipeline.numbered_batches import NumberedBatches, rejected_lines
from tests.pipeline.usage_files import put
from weir.pipeline.ingest.job import ingest
from weir.pipeline.ingest.sources import Directory
from weir.pipeline.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]  # Java starts for every kill

FILES = 6
ROWS = 1200
PADDING = "x" * 900
"""Part of a client-id: makes each file larger than the 1 MB of a batch, so that each file is a batch."""


def write(directory: Path, batches: NumberedBatches) -> None:
    for file in range(FILES):
        name = f"{batches.kind}-weir-1-{file:08d}.jsonl"
        put(directory, name, *batches.lines(file), b"bad %d" % file)
        os.utime(directory / name, (1_700_000_000 + file, 1_700_000_000 + file))


def test_ingest_killed_repeatedly_loses_and_doubles_no_record(spark: SparkSession, tmp_path: Path) -> None:
    """Traces take the same way."""
    kind, lake, directory = "usage", Lake(str(tmp_path / "lake")), tmp_path / "records"
    batches = NumberedBatches(kind, ROWS, PADDING)
    write(directory, batches)
    options = ("--lake", lake.root, "--files", str(directory), "--kind", kind, "--once")
    seen = [
        state
        for kill in (Kill(kind, "after", 2), Kill("rejected", "after", 2))
        for state in seen_until_killed(
            kill, lambda: batches.seen(spark, lake), "ingest", *options, "--batch-bytes", "1MiB"
        )
    ]
    assert seen[-1] >= {0, 1, 2}
    assert all(earlier <= later for earlier, later in pairwise(seen))

    outcome = ingest(spark, lake, Directory(str(directory), 1 << 20), kinds=(kind,))
    assert outcome.wrote[f"{kind} records"] >= (FILES - len(seen[-1])) * ROWS
    batches.check_table(spark, lake, range(FILES))
    assert rejected_lines(spark, lake) == Counter(f"bad {file}" for file in range(FILES))
    assert set(ingest(spark, lake, Directory(str(directory), 1 << 20)).read.values()) == {0}
