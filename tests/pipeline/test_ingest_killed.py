"""`weir pipeline ingest` is killed (-9, with its JVM) repeatedly, and loses or doubles no record.

Each file is a batch. The test computes late records from the files alone, by the rule of
`pipeline.ingest.ledger`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest

from weir.pipeline import tables
from weir.pipeline.ingest.job import ingest
from weir.pipeline.ingest.ledger import LEDGER
from weir.pipeline.ingest.sources import Directory
from weir.pipeline.lake import Lake
from weir.usage.records import UsageRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FILES = 4
ROWS = 1200
PADDING = "x" * 1000
"""Padding of a line: makes each file larger than the 1 MB of a batch, so that each file is a batch."""
DAY_MS = 86_400_000
LATE_AFTER_MS = 600_000
BASE_MS = 1_700_000_000_000
SEED = 8


class Input(NamedTuple):
    """A line, and its expected result."""

    line: bytes
    name: str
    table: str
    day: str | None


def newest_ms(file: int) -> int:
    return BASE_MS + file * DAY_MS


def content(file: int) -> list[Input]:
    """Return a day's records: good ones, one just not late, one just late, and a truncated line."""
    last_in_time_ms = newest_ms(file - 1) - LATE_AFTER_MS
    step_ms = (newest_ms(file) - last_in_time_ms) // (ROWS - 1)
    times = [newest_ms(file) - number * step_ms for number in range(ROWS - 1)] + [last_in_time_ms]
    lines = [record(f"{file}-{number}", time_ms, "usage") for number, time_ms in enumerate(times)]
    is_late = "late" if file else "usage"  # the first batch has no earlier records
    lines.append(record(f"{file}-late", last_in_time_ms - 1, is_late))
    return [*lines, Input(lines[0].line[:50], lines[0].line[:50].decode(), "malformed", None)]


def record(name: str, time_ms: int, table: str) -> Input:
    written = UsageRecord(
        version=1,
        time_ms=time_ms,
        interval_ms=1000,
        instance="weir-1",
        broker=1,
        user=PADDING,
        client_id=name,
        api="produce",
        requests=1,
    )
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    return Input(msgspec.json.encode(written), name, table, str(moment.date()))


def write(directory: Path) -> list[Input]:
    inputs = []
    directory.mkdir()
    for file in range(FILES):
        lines = content(file)
        path = directory / f"usage-weir-1-{file:08d}.jsonl"
        path.write_bytes(b"".join(each.line + b"\n" for each in lines))
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))
        inputs += lines
    return inputs


def killed(point: str, number: int, lake: Lake, directory: Path) -> None:
    """Run ingest in a subprocess that kills itself."""
    script = Path(__file__).with_name("killed_ingest.py")
    options = ["pipeline", "ingest", "--lake", lake.root, "--files", str(directory), "--kind", "usage"]
    options += ["--once", "--batch-bytes", "1MiB", "--master", "local[2]"]
    done = subprocess.run(
        [sys.executable, str(script), point, str(number), str(SEED), "--", *options],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


def last(lake: Lake, log: str) -> int:
    names = (path.name for path in Path(lake.checkpoint("usage"), log).iterdir())
    return max((int(name) for name in names if name.isdigit()), default=-1)


def is_entered(lake: Lake, batch: int) -> bool:
    return bool(list(Path(lake.ledger("usage"), f"batch={batch}").glob("*.parquet")))


def is_written(lake: Lake, batch: int) -> bool:
    return bool(list(Path(lake.usage).glob(f"day=*/batch={batch}/*.parquet")))


def test_ingest_killed_repeatedly_loses_and_doubles_no_record(spark: SparkSession, tmp_path: Path) -> None:
    lake, directory = Lake(str(tmp_path / "lake")), tmp_path / "usage"
    inputs = write(directory)

    killed("written", 2, lake, directory)
    assert (last(lake, "offsets"), last(lake, "commits")) == (1, 0)
    assert is_written(lake, 1)
    assert not is_entered(lake, 1)

    killed("entered", 1, lake, directory)  # batch 1 again
    assert (last(lake, "offsets"), last(lake, "commits")) == (1, 0)
    assert is_entered(lake, 1)

    killed("moment", 1, lake, directory)  # and again
    done = last(lake, "commits") + 1
    assert done >= 1

    outcome = ingest(spark, lake, Directory(str(directory), 1 << 20), kinds=("usage",))
    assert outcome.read == {"usage lines": (FILES - done) * (ROWS + 2)}
    found = [
        *rows(spark, lake.usage, "client_id", "usage", "cast(day as string)"),
        *rows(spark, lake.late("usage"), "client_id", "late", "cast(day as string)"),
        *rows(spark, lake.malformed("usage"), "line", "malformed", "cast(null as string)"),
    ]
    assert Counter(found) == Counter((each.name, each.table, each.day) for each in inputs)

    again = ingest(spark, lake, Directory(str(directory), 1 << 20), kinds=("usage",))
    assert set(again.read.values()) == {0}
    ledger = tables.read(spark, lake.ledger("usage"), LEDGER).orderBy("batch").collect()
    assert [(row.batch, row.read, row.good, row.late, row.malformed) for row in ledger] == [
        (batch, ROWS + 2, ROWS + (batch == 0), int(batch > 0), 1) for batch in range(FILES)
    ]
    assert [row.taken_ms for row in ledger] == [planned_ms(lake, batch) for batch in range(FILES)]


def rows(
    spark: SparkSession, path: str, name: str, table: str, day: str
) -> list[tuple[str, str, str | None]]:
    frame = spark.read.parquet(path).selectExpr(f"{name} name", f"{day} day")
    return [(row.name, table, row.day) for row in frame.collect()]


def planned_ms(lake: Lake, batch: int) -> int:
    """Return the time (ms) at which Spark first began a batch, from its checkpoint."""
    lines = Path(lake.checkpoint("usage"), "offsets", str(batch)).read_text().splitlines()
    return int(json.loads(lines[1])["batchTimestampMs"])
