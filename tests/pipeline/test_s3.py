"""The jobs with files of records and a lake on S3, which moto serves on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.pipeline.usage_files import NOON_MS, put, usage
from weir.pipeline.lake import Lake, read
from weir.pipeline.rollup.columns import ROLLUP
from weir.pipeline.tables import USAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

REPOSITORY: Final = Path(__file__).parents[2]
BUCKET: Final = "weir"
KEYS: Final = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
TABLES: Final = {"usage": USAGE, "rollup": ROLLUP}


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


def job(endpoint: str, name: str, *options: str) -> dict[str, Any]:
    """Run `weir pipeline` in a process of its own, and return its outcome."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    environment = os.environ | keys | {"AWS_ENDPOINT_URL": endpoint, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "weir.cli", "pipeline", name, *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def run_all(endpoint: str, lake: str, files: str, output: Path) -> list[dict[str, int]]:
    """Run the jobs from records to quotas; return the counts that each has told."""
    outcomes = [
        job(endpoint, "ingest", "--lake", lake, "--files", files, "--once"),
        job(endpoint, "rollup", "--lake", lake),
        job(endpoint, "recommend", "--lake", lake, "--output", str(output)),
    ]
    return [{**outcome["read"], **outcome["wrote"]} for outcome in outcomes]


def rows(spark: SparkSession, path: str, columns: StructType) -> list[str]:
    return sorted(map(str, read(spark, path, columns).collect()))


def proposals(file: Path) -> list[str]:
    """Return the lines of a quota file without its comments: some comments have the time and the path."""
    return [line for line in file.read_text("utf-8").splitlines() if not line.startswith("#")]


def test_jobs_on_s3_write_the_same_tables_and_quotas_as_on_local_files(
    spark: SparkSession, endpoint: str, tmp_path: Path
) -> None:
    files, local = tmp_path / "records", tmp_path / "lake"
    for number, name in enumerate(("a", "b")):
        hours = (usage(NOON_MS + hour * 3_600_000, f"{name}{hour}") for hour in range(24))
        put(files, f"usage-weir-1-0000000{number}.jsonl", *hours, b"no record")
    upload(endpoint, files)

    on_s3 = run_all(endpoint, f"s3a://{BUCKET}/lake", f"s3a://{BUCKET}/records", tmp_path / "s3.toml")
    on_disk = run_all(endpoint, str(local), str(files), tmp_path / "local.toml")
    assert on_s3 == on_disk
    assert on_s3[0] == {
        "usage lines": 50,
        "usage records": 48,
        "rejected usage": 2,
        "trace lines": 0,
        "trace records": 0,
    }
    assert proposals(tmp_path / "s3.toml") == proposals(tmp_path / "local.toml")
    download(endpoint, tmp_path / "copy")
    for name, columns in TABLES.items():
        of_s3 = rows(spark, str(tmp_path / "copy" / "lake" / name), columns)
        assert of_s3 == rows(spark, Lake(str(local)).path(name), columns)
        assert of_s3
    assert job(
        endpoint, "ingest", "--lake", f"s3a://{BUCKET}/lake", "--files", f"s3a://{BUCKET}/records", "--once"
    )["notes"] == ["nothing new"], "the checkpoint is on S3, too"
