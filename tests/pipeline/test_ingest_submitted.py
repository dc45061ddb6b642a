"""PySpark's `spark-submit` runs the jobs in local mode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.spark_cluster import ENTRY, SUBMIT
from tests.pipeline.usage_files import NOON_MS, clients, put, usage
from weir.pipeline import jars, java
from weir.pipeline.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def submit(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(SUBMIT), "--master", "local[2]", "--jars", ",".join(map(str, jars.provided()))]
    with java.launcher(local=True):
        return subprocess.run(
            [*command, str(ENTRY), *options], capture_output=True, text=True, check=False, cwd=tmp_path
        )


def test_spark_submit_runs_a_pipeline_job(spark: SparkSession, tmp_path: Path) -> None:
    directory, lake = tmp_path / "usage", Lake(str(tmp_path / "lake"))
    put(directory, "usage-weir-1-00000000.jsonl", usage(NOON_MS, "a"), usage(NOON_MS, "b"))
    done = submit(tmp_path, "ingest", "--lake", lake.root, "--files", str(directory), "--once", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["wrote"] == {"usage records": 2, "trace records": 0}
    assert clients(spark, lake.usage) == {"a": 1, "b": 1}


def test_the_spark_submit_entry_file_does_not_import_modules_beside_it(tmp_path: Path) -> None:
    command = [sys.executable, str(ENTRY), "ingest", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("Usage: submit.py ingest")
