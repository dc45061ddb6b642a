"""All jobs by the documented commands at a standalone master with two workers, and at a cluster that Spark
starts itself (`local-cluster`). Executors have no Weir. The results are those of local jobs.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from tests.pipeline.killed import COLUMNS, SEED, content
from tests.pipeline.spark_cluster import ENTRY, SUBMIT, Cluster, cluster
from tests.pipeline.usage_files import NOON_MS, put, usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(3600)]

HOUR_MS: Final = 3_600_000
JOBS_S: Final = 1200.0
"""Maximum time (s) of all jobs."""
WEIR: Final = (sys.executable, "-m", "weir.cli", "pipeline")
Results = tuple[object, ...]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with usage records of 30 hours, and a line that is no record."""
    directory = tmp_path_factory.mktemp("usage")
    use = {"api": "produce", "requests": 50, "interval_ms": 10_000, "charged_bytes": 20_000_000}
    lines = [
        msgspec.json.encode(msgspec.json.decode(usage(NOON_MS + hour * HOUR_MS, name)) | use)
        for hour in range(30)
        for name in "abc"
    ]
    put(directory, "usage-weir-1-00000000.jsonl", *lines, b"bad")
    return directory


@pytest.fixture(scope="module")
def right(spark: SparkSession, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return the results of local jobs."""
    root = tmp_path_factory.mktemp("local")
    ends(begin((*WEIR, "nightly", "--master", "local[2]"), root, files, dict(os.environ)), root)
    return results(spark, root)


def begin(nightly: tuple[str, ...], root: Path, files: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start all jobs by a command."""
    jobs = (
        f"ingest --files {files} --once",
        "rollup",
        f"recommend --output {root}/new.toml",
        f"replay {root}/new.toml",
        f"report --output {root}/report.html",
        "maintain",
    )
    with (root / "output.txt").open("wb") as output:
        return subprocess.Popen(
            [*nightly, "--lake", f"{root}/lake", *jobs],
            stdout=output,
            stderr=output,
            env=env,
            start_new_session=True,
        )


def ends(jobs: subprocess.Popen[bytes], root: Path) -> None:
    """Fail unless the jobs succeed in time."""
    try:
        assert jobs.wait(JOBS_S) == 0, (root / "output.txt").read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(jobs.pid, signal.SIGKILL)


def results(spark: SparkSession, root: Path) -> Results:
    report, quotas = ((root / name).read_text().splitlines() for name in ("report.html", "new.toml"))
    tables = [content(spark, f"{root}/lake/{name}", columns) for name, columns in COLUMNS.items()]
    assert all(tables)
    return quotas[1:], [line for line in report if "Weir report, " not in line], *tables


def test_jobs_at_a_standalone_master_write_the_results_of_local_jobs(
    spark: SparkSession, right: Results, files: Path, standalone: Cluster, tmp_path: Path
) -> None:
    command = (*WEIR, "nightly", "--master", standalone.master, "--driver-memory", "1GiB")
    ends(begin(command, tmp_path, files, standalone.env), tmp_path)
    assert results(spark, tmp_path) == right


@pytest.mark.parametrize("master", ["", "local-cluster[2,1,1024]"], ids=["standalone", "local-cluster"])
def test_jobs_of_the_documented_spark_submit_write_the_results_of_local_jobs(
    spark: SparkSession, right: Results, files: Path, standalone: Cluster, tmp_path: Path, master: str
) -> None:
    """Spark ignores a wheel in --py-files: the documented command left the executors without Weir."""
    jars = subprocess.run([*WEIR, "jars"], capture_output=True, text=True, check=True).stdout.strip()
    command = (str(SUBMIT), "--master", master or standalone.master, "--jars", jars, str(ENTRY), "nightly")
    ends(begin(command, tmp_path, files, standalone.env), tmp_path)
    assert results(spark, tmp_path) == right


def test_killed_executors_change_no_result(
    spark: SparkSession, right: Results, files: Path, standalone: Cluster, tmp_path: Path
) -> None:
    draw, killed = random.Random(SEED), 0
    command = (*WEIR, "nightly", "--master", standalone.master, "--driver-memory", "1GiB")
    jobs = begin(command, tmp_path, files, standalone.env)
    while jobs.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            jobs.wait(draw.uniform(1, 15))
        if executors := standalone.executors():
            os.kill(draw.choice(executors), signal.SIGKILL)
            killed += 1
    ends(jobs, tmp_path)
    assert killed > 1
    assert results(spark, tmp_path) == right
