"""The jobs with files of records and a lake on S3, which moto serves on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.pipeline.all_jobs import all_jobs, results, write_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(3600)]

REPOSITORY: Final = Path(__file__).parents[2]
BUCKET: Final = "weir"
KEYS: Final = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
LAKE: Final = f"s3a://{BUCKET}/lake"
RECORDS: Final = f"s3a://{BUCKET}/records"


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


def upload(endpoint: str, directory: Path) -> None:
    for path in directory.iterdir():
        client(endpoint).upload_file(str(path), BUCKET, f"{directory.name}/{path.name}")


def download(endpoint: str, directory: Path) -> None:
    """Copy all objects of the bucket to files below `directory`."""
    pages = client(endpoint).get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    for found in (each for page in pages for each in page["Contents"]):
        if not found["Key"].endswith("/"):  # S3A marks directories by such objects
            path = directory / found["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            client(endpoint).download_file(BUCKET, found["Key"], str(path))


def weir(endpoint: str, master: str, job: str, *options: str) -> dict[str, Any]:
    """Run `weir pipeline` in a process of its own, and return the outcome of the last job."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    environment = os.environ | keys | {"AWS_ENDPOINT_URL": endpoint, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "weir.cli", "pipeline", job, "--master", master, *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def test_jobs_on_s3_write_the_results_of_jobs_on_local_files(
    spark: SparkSession,
    run: Callable[..., None],
    endpoint: str,
    master: str,
    tmp_path: Path,
) -> None:
    local, copy = tmp_path / "local", tmp_path / "copy"
    records = write_records(tmp_path / "records")
    local.mkdir()
    run(*all_jobs(local, records))
    upload(endpoint, records)
    copy.mkdir()
    weir(endpoint, master, *all_jobs(copy, RECORDS, LAKE))
    download(endpoint, copy)
    assert results(spark, copy) == results(spark, local)
    again = weir(endpoint, master, "ingest", "--lake", LAKE, "--files", RECORDS, "--once")
    assert again["notes"] == ["nothing new"], "the checkpoint is on S3, too"
