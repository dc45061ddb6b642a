"""`weir pipeline rollup`, `maintain`, `recommend`, `replay` and `report` are killed (-9, with their JVMs).

Meanwhile a reader sees only versions of the tables that a run without kills writes, in their order, and
output files are either old or new. After the next run, tables and files are those of a run without kills.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from click.testing import CliRunner

from tests.pipeline.killed import (
    COLUMNS,
    SEED,
    Kill,
    Rows,
    content,
    is_part,
    seen_until_killed,
    versions,
    without_repetitions,
)
from tests.pipeline.spark_cluster import cluster
from tests.pipeline.usage_files import put, usage
from tests.pipeline.usage_rows import DAY_MS, FIRST_DAY, FIRST_MS, ingest, record
from weir.cli.main import weir
from weir.pipeline.ingest.batch import take
from weir.pipeline.ingest.parse import SOURCE, USAGE, parsed
from weir.pipeline.lake import Lake, latest
from weir.pipeline.rollup.columns import QUOTAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]  # Java starts for every kill

HOUR_MS: Final = 3_600_000
KILLS: Final = 3
"""Number of random kills of each job."""
JOB_S: Final = 20.0
"""Time (s), roughly, that a job takes after Spark has started."""
OLD_PAGE: Final = "the page before"
TIME_OF_RUN: Final = re.compile(r"(?!2026-03)\d{4}-\d\d-\d\d \d\d:\d\d")
"""Pattern of times in output files, except those of the records."""


class Job(NamedTuple):
    """A job, the tables that it writes, and its options. `file` is the name of its output file."""

    name: str
    writes: tuple[str, ...] = ()
    file: str | None = None
    options: tuple[str, ...] = ()


INGEST: Final = Job("ingest", ("usage", "rejected"))
ROLLUP: Final = Job("rollup", ("rollup",))
RECOMMEND: Final = Job("recommend", ("recommendation",), "new.toml", ("--headroom", "3"))
REPLAY: Final = Job("replay", ("replay",))
REPORT: Final = Job("report", (), "page.html")
MAINTAIN: Final = Job("maintain", ("usage", "rejected", "rollup"))

CASES: Final = {
    "rollup": (
        ROLLUP,
        (Kill("rollup", "during"), Kill("rollup", "during", seed=SEED + 1), Kill("rollup", "after")),
    ),
    "maintain, taking lines in": (MAINTAIN, (Kill("usage", "after"), Kill("MERGE", "during"))),
    "maintain, deleting": (MAINTAIN, (Kill("DELETE", "during"), Kill("DELETE", "after", 3))),
    "maintain, compacting": (MAINTAIN, (Kill("OPTIMIZE", "during"), Kill("VACUUM", "during", 2))),
    "recommend, writing the table": (
        RECOMMEND,
        (Kill("recommendation", "during"), Kill("recommendation", "after")),
    ),
    "recommend, writing the file": (
        RECOMMEND,
        (Kill("file", "during"), Kill("file", "before"), Kill("file", "after")),
    ),
    "replay": (
        REPLAY,
        (Kill("replay", "during"), Kill("replay", "during", seed=SEED + 1), Kill("replay", "after")),
    ),
    "report": (REPORT, (Kill("file", "during"), Kill("file", "before"), Kill("file", "after"))),
}


@pytest.fixture(scope="module")
def run(spark: SparkSession) -> Iterator[Callable[..., None]]:
    """Yield a function that runs `weir pipeline` to its end, in the session of the tests."""

    @contextmanager
    def shared(_name: str, **_: object) -> Iterator[SparkSession]:
        yield spark

    def run(*arguments: str) -> None:
        done = CliRunner().invoke(weir, ["pipeline", *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weir.pipeline.spark.session", shared)
        yield run


@pytest.fixture(scope="module")
def made(spark: SparkSession, run: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a lake that all jobs have written to once, and their output files."""
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
    (directory / "candidate.toml").write_text("[[quota]]\nclient_id = 'a'\nproducer_byte_rate = 300_000\n")
    (directory / "before.toml").write_text("[[quota]]\nclient_id = 'b'\nproducer_byte_rate = 200_000\n")
    run("rollup", "--lake", lake.root)
    run("recommend", "--lake", lake.root, "--output", str(directory / "new.toml"))
    run("replay", "--lake", lake.root, str(directory / "before.toml"))
    (directory / "page.html").write_text(OLD_PAGE)
    put(directory / "records", "usage-weir-1-00000000.jsonl", *later, b"bad too")
    _leave_unused_file(Path(lake.usage))
    return directory


def _leave_unused_file(table: Path) -> None:
    """Write a file that VACUUM deletes: it is older than the table's history, and in no version."""
    unused = table / "unused.parquet"
    unused.write_bytes(b"of a job that was killed")
    os.utime(unused, (FIRST_MS // 1000, FIRST_MS // 1000))


def arguments(job: Job, directory: Path) -> tuple[str, ...]:
    options = ["--lake", str(directory / "lake"), *job.options]
    if job.file is not None:
        options += ["--output", str(directory / job.file), "--force"]
    if job is REPLAY:
        options.append(str(directory / "candidate.toml"))
    if job is INGEST:
        options += ["--files", str(directory / "records"), "--once"]
    if job is MAINTAIN:  # days 0 and 1 are older
        days = (datetime.now(UTC).date() - FIRST_DAY - timedelta(days=5)).days
        options += ["--retention-days", str(days), "--rollup-retention-days", str(days)]
    return tuple(options)


def text_of(job: Job, directory: Path) -> str:
    """Return the output file's text without the time of the run; "" if the job has no output file."""
    return "" if job.file is None else TIME_OF_RUN.sub("…", (directory / job.file).read_text())


def tables_of(spark: SparkSession, job: Job, directory: Path) -> Mapping[str, Rows]:
    lake = Lake(str(directory / "lake"))
    return {name: content(spark, lake.path(name), COLUMNS[name]) for name in job.writes}


@pytest.mark.parametrize("case", CASES)
def test_a_killed_job_leaves_whole_tables_and_files(
    spark: SparkSession, run: Callable[..., None], made: Path, tmp_path: Path, case: str
) -> None:
    check(spark, run, made, tmp_path, *CASES[case])


@pytest.fixture(scope="module")
def master(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a cluster, in the environment of its drivers. The Spark of `made` runs before."""
    assert made.is_dir()
    with cluster(tmp_path_factory.mktemp("cluster")) as found, pytest.MonkeyPatch.context() as patch:
        for name, value in found.env.items():
            patch.setenv(name, value)
        yield found.master


@pytest.mark.cluster
@pytest.mark.parametrize(
    "job", [INGEST, ROLLUP, RECOMMEND, REPLAY, MAINTAIN, REPORT], ids=lambda job: job.name
)
def test_a_job_killed_at_random_times_on_a_cluster_leaves_whole_tables_and_files(
    spark: SparkSession, run: Callable[..., None], made: Path, tmp_path: Path, master: str, job: Job
) -> None:
    kills = [Kill("job", str(JOB_S), seed=SEED + number, master=master) for number in range(KILLS)]
    check(spark, run, made, tmp_path, job, kills)


def check(
    spark: SparkSession,
    run: Callable[..., None],
    made: Path,
    tmp_path: Path,
    job: Job,
    kills: Iterable[Kill],
) -> None:
    """Kill a job so often, run it to its end, and compare with a job that was not killed."""
    never, often = tmp_path / "never", tmp_path / "often"
    for directory in (never, often):
        shutil.copytree(made, directory)
        if job is ROLLUP:
            run(INGEST.name, *arguments(INGEST, directory))
    lake = Lake(str(never / "lake"))
    before = {name: latest(spark, lake.path(name)) or 0 for name in job.writes}
    run(job.name, *arguments(job, never))
    right = {name: versions(spark, lake.path(name), COLUMNS[name], before[name]) for name in job.writes}
    files = [text_of(job, made), text_of(job, never)]
    assert job.file is None or files[0] != files[1]
    assert all(len(set(contents)) > 1 for contents in right.values()), "the job changes each table"

    def look() -> tuple[Mapping[str, Rows], str]:
        return tables_of(spark, job, often), text_of(job, often)

    seen = [
        state for kill in kills for state in seen_until_killed(kill, look, job.name, *arguments(job, often))
    ]
    for name, contents in right.items():
        assert is_part(without_repetitions(state[name] for state, _ in seen), contents), name
    assert is_part(without_repetitions(text for _, text in seen), files)
    run(job.name, *arguments(job, often))
    assert look() == ({name: contents[-1] for name, contents in right.items()}, files[-1])
    assert {path.name for path in often.iterdir() if not path.name.startswith(".")} == {
        path.name for path in made.iterdir()
    }
    if job is MAINTAIN:
        assert not Path(Lake(str(often / "lake")).usage, "unused.parquet").exists()
