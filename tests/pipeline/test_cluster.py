"""All jobs at a standalone master with two workers, whose executors have no Weir: by spark-submit as
documented, with a lake on S3, which moto serves on this machine. Meanwhile executors are killed (-9). The
results are those of local jobs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.demo.process_table import stats
from tests.pipeline.all_jobs import Results, all_jobs, results, write_records
from tests.pipeline.spark_cluster import ENTRY, SUBMIT, Cluster, cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(3600)]

JOBS_S: Final = 1200.0
"""Maximum time (s) of all jobs."""
WEIR: Final = (sys.executable, "-m", "weir.cli", "pipeline")
REPOSITORY: Final = Path(__file__).parents[2]
BUCKET: Final = "weir"
KILLS: Final = 3
"""Number of executors that are killed."""
BUSY_S: Final = 12.0
"""CPU time (s) within which an executor that will be killed is: a busy machine does not move it."""
SEED: Final = 20261123
KEYS: Final = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
LAKE: Final = f"s3a://{BUCKET}/lake"
RECORDS: Final = f"s3a://{BUCKET}/records"


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


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        client(url).create_bucket(Bucket=BUCKET)
        yield url
    finally:
        server.stop()


def client(endpoint: str) -> Any:  # boto3 makes its classes at run time
    return boto3.client("s3", endpoint_url=endpoint, **KEYS)


def download(endpoint: str, directory: Path) -> None:
    """Copy all objects of the bucket to files below `directory`."""
    pages = client(endpoint).get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    for found in (each for page in pages for each in page["Contents"]):
        if not found["Key"].endswith("/"):  # S3A marks directories by such objects
            path = directory / found["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            client(endpoint).download_file(BUCKET, found["Key"], str(path))


def environment(at: Cluster, endpoint: str) -> dict[str, str]:
    """Return the environment of a driver that uses this S3."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    return at.env | keys | {"AWS_ENDPOINT_URL": endpoint, "PYTHONPATH": str(REPOSITORY)}


def kill_executors(jobs: subprocess.Popen[bytes], workers: Collection[int]) -> int:
    """Kill `KILLS` executors of these workers, one after the other, while the jobs run. Return the number."""
    draw, parents, killed = random.Random(SEED), set(map(str, workers)), 0
    dies_s = draw.uniform(0, BUSY_S)
    while killed < KILLS and jobs.poll() is None:
        for pid, _, state, parent, *rest in stats():
            cpu_s = (int(rest[9]) + int(rest[10])) / os.sysconf("SC_CLK_TCK")
            if parent in parents and state != "Z" and cpu_s > dies_s:
                os.kill(int(pid), signal.SIGKILL)
                killed, dies_s = killed + 1, draw.uniform(0, BUSY_S)
                break
        time.sleep(0.1)  # between two looks
    return killed


def test_jobs_at_a_cluster_whose_executors_are_killed_write_the_results_of_local_jobs(
    spark: SparkSession, right: Results, files: Path, standalone: Cluster, endpoint: str, tmp_path: Path
) -> None:
    """Spark ignores a wheel in --py-files: the documented command left the executors without Weir."""
    for path in files.iterdir():
        client(endpoint).upload_file(str(path), BUCKET, f"records/{path.name}")
    jars = subprocess.run([*WEIR, "--spark-jars"], capture_output=True, text=True, check=True).stdout.strip()
    submit = (str(SUBMIT), "--master", standalone.master, "--jars", jars, str(ENTRY))
    with (tmp_path / "output.txt").open("wb") as output:
        jobs = subprocess.Popen(
            [*submit, *all_jobs(tmp_path, RECORDS, LAKE)],
            stdout=output,
            stderr=output,
            env=environment(standalone, endpoint),
            start_new_session=True,
        )
    try:
        killed = kill_executors(jobs, standalone.workers)
        assert jobs.wait(JOBS_S) == 0, (tmp_path / "output.txt").read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(jobs.pid, signal.SIGKILL)
    assert killed == KILLS
    download(endpoint, tmp_path)
    assert results(spark, tmp_path) == right
    # `weir pipeline` loads the jars for S3 itself
    again = (*WEIR, "ingest", "--master", standalone.master, "--lake", LAKE, "--files", RECORDS, "--once")
    done = subprocess.run(
        [*again, "--json"], capture_output=True, text=True, check=False, env=environment(standalone, endpoint)
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["notes"] == ["nothing new"], "the checkpoint is on S3, too"
