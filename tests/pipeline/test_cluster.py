"""All jobs by the documented commands at a standalone master with two workers. Executors have no Weir. The
results are those of local jobs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.pipeline.all_jobs import Results, all_jobs, results, write_records
from tests.pipeline.spark_cluster import ENTRY, SUBMIT, Cluster, cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(3600)]

JOBS_S: Final = 1200.0
"""Maximum time (s) of all jobs."""
WEIR: Final = (sys.executable, "-m", "weir.cli", "pipeline")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_records(tmp_path_factory.mktemp("usage"))


@pytest.fixture(scope="module")
def right(
    spark: SparkSession, run: Callable[..., None], files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Results:
    root = tmp_path_factory.mktemp("local")
    run(*all_jobs(root, files))
    return results(spark, root)


def test_jobs_of_the_documented_spark_submit_write_the_results_of_local_jobs(
    spark: SparkSession, right: Results, files: Path, standalone: Cluster, tmp_path: Path
) -> None:
    """Spark ignores a wheel in --py-files: the documented command left the executors without Weir."""
    jars = subprocess.run([*WEIR, "--spark-jars"], capture_output=True, text=True, check=True).stdout.strip()
    submit = (str(SUBMIT), "--master", standalone.master, "--jars", jars, str(ENTRY))
    with (tmp_path / "output.txt").open("wb") as output:
        jobs = subprocess.Popen(
            [*submit, *all_jobs(tmp_path, files)],
            stdout=output,
            stderr=output,
            env=standalone.env,
            start_new_session=True,
        )
    try:
        assert jobs.wait(JOBS_S) == 0, (tmp_path / "output.txt").read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(jobs.pid, signal.SIGKILL)
    assert results(spark, tmp_path) == right
