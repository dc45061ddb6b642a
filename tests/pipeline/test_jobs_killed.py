"""`weir pipeline rollup` and `maintain` are killed (-9, with their JVMs).

Meanwhile a reader sees only versions of the tables that a run without kills writes, in their order. After the
next run, tables are those of a run without kills.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.pipeline.killed import (
    COLUMNS,
    Kill,
    Rows,
    content,
    is_part,
    seen_until_killed,
    versions,
    without_repetitions,
)
from tests.pipeline.usage_files import put, usage
from tests.pipeline.usage_rows import DAY_MS, FIRST_DAY, FIRST_MS, ingest, record
from weir.pipeline.ingest.batch import take
from weir.pipeline.ingest.parse import SOURCE, USAGE, parsed
from weir.pipeline.lake import Lake, latest
from weir.pipeline.rollup.columns import QUOTAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]  # Java starts for every kill

HOUR_MS: Final = 3_600_000
State = Mapping[str, Rows]
"""Rows of each table that a job writes."""


class Job(NamedTuple):
    """A job, and the tables that it writes."""

    name: str
    writes: tuple[str, ...]


INGEST: Final = Job("ingest", ("usage", "rejected"))
ROLLUP: Final = Job("rollup", ("rollup",))
MAINTAIN: Final = Job("maintain", ("usage", "rejected", "rollup"))

KILLS: Final = {ROLLUP: Kill("rollup", "during"), MAINTAIN: Kill("usage", "after")}
"""Kills of jobs while a table is replaced, and while lines are moved between tables. Other jobs replace their
tables by the function that rollup calls; the rest of maintain is Delta Lake's.
"""


@pytest.fixture(scope="module")
def made(spark: SparkSession, run: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a lake that these jobs have written to once, and records for the next run."""
    directory = tmp_path_factory.mktemp("made")
    lake = Lake(str(directory / "lake"))
    nothing = dict.fromkeys(QUOTAS, 0)
    seconds = [
        day * DAY_MS + hour * HOUR_MS + second * 1000
        for day in (0, 1, 10, 11, 12)
        for hour in range(4)
        for second in (1, 2)
    ]
    records = [
        record(
            time_ms,
            client_id=name,
            requests=1,
            bytes_in=4_000_000,
            bytes_out=0,
            charged_bytes=4_000_000,
            throttle_ms=nothing,
            violations=nothing,
        )
        for name in "ab"
        for time_ms in seconds
    ]
    ingest(spark, lake, records)
    ahead = [usage(FIRST_MS + 11 * DAY_MS + 1, name) for name in "ab"]
    lines = [(b"old", 0), *((line, 0) for line in ahead), (b"bad", 12)]
    later = [usage(FIRST_MS + 12 * DAY_MS + number, name) for name in "ab" for number in range(100)]
    rows = [("here", bytearray(line), FIRST_MS + day * DAY_MS) for line, day in lines]
    rejected = parsed(spark.createDataFrame(rows, SOURCE), USAGE, files=False)
    assert take(rejected, lake, USAGE, "default", "stream", 0).rejected == 4
    run("rollup", "--lake", lake.root)
    put(directory / "records", "usage-weir-1-00000000.jsonl", *later, b"bad too")
    _leave_unused_file(Path(lake.usage))
    return directory


def _leave_unused_file(table: Path) -> None:
    """Write a file that VACUUM deletes: it is older than the table's history, and in no version."""
    unused = table / "unused.parquet"
    unused.write_bytes(b"of a job that was killed")
    os.utime(unused, (FIRST_MS // 1000, FIRST_MS // 1000))


def arguments(job: Job, directory: Path) -> tuple[str, ...]:
    options = ["--lake", str(directory / "lake")]
    if job is INGEST:
        options += ["--files", str(directory / "records"), "--once"]
    if job is MAINTAIN:  # days 0 and 1 are older
        days = (datetime.now(UTC).date() - FIRST_DAY - timedelta(days=5)).days
        options += ["--retention-days", str(days), "--rollup-retention-days", str(days)]
    return tuple(options)


@pytest.mark.parametrize("job", KILLS, ids=lambda job: job.name)
def test_a_killed_job_leaves_whole_tables(
    spark: SparkSession, run: Callable[..., None], made: Path, tmp_path: Path, job: Job
) -> None:
    """The job is killed, runs to its end, and is compared with one that was not killed."""
    right = expected(spark, run, made, tmp_path / "never", job)
    once = Killable(spark, run, made, tmp_path / "once", job)
    once.see(KILLS[job])
    once.run_to_end()
    right.check(once)


class Killable:
    """A job that is killed in a directory of its own, and the states of its output."""

    def __init__(
        self, spark: SparkSession, run: Callable[..., None], made: Path, directory: Path, job: Job
    ) -> None:
        shutil.copytree(made, directory)
        self.job, self.directory, self.made = job, directory, made
        self.lake = Lake(str(directory / "lake"))
        self._spark, self._run = spark, run
        self.seen: list[State] = []
        if job is ROLLUP:
            run(INGEST.name, *arguments(INGEST, directory))

    def look(self) -> State:
        return {name: content(self._spark, self.lake.path(name), COLUMNS[name]) for name in self.job.writes}

    def see(self, kill: Kill) -> None:
        """Run the job until it is killed, and note the states of its output."""
        self.seen += seen_until_killed(kill, self.look, self.job.name, *arguments(self.job, self.directory))

    def run_to_end(self) -> None:
        self._run(self.job.name, *arguments(self.job, self.directory))
        self.seen.append(self.look())


class Expected(NamedTuple):
    """Versions of each table that a job writes if it is not killed."""

    versions: Mapping[str, Sequence[Rows]]

    @property
    def last(self) -> State:
        return {name: contents[-1] for name, contents in self.versions.items()}

    def check(self, job: Killable) -> None:
        """Fail if a state of the killed job's output is none of these, in order, or not the last."""
        for name, contents in self.versions.items():
            assert is_part(without_repetitions(state[name] for state in job.seen), contents), name
        assert job.look() == self.last
        left = {path.name for path in job.directory.iterdir() if not path.name.startswith(".")}
        assert left == {path.name for path in job.made.iterdir()}
        if job.job is MAINTAIN:
            assert not Path(job.lake.usage, "unused.parquet").exists()


def expected(
    spark: SparkSession, run: Callable[..., None], made: Path, directory: Path, job: Job
) -> Expected:
    never = Killable(spark, run, made, directory, job)
    before = {name: latest(spark, never.lake.path(name)) or 0 for name in job.writes}
    never.run_to_end()
    right = {name: versions(spark, never.lake.path(name), COLUMNS[name], before[name]) for name in job.writes}
    assert all(len(set(contents)) > 1 for contents in right.values()), "the job changes each table"
    return Expected(right)
