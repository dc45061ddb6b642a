"""All jobs at a standalone master with two workers, by the documented commands. Executors have no Weir."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.integration.pipeline_jobs import rows
from tests.pipeline.spark_cluster import ENTRY, SUBMIT, bare_python, environment, standalone
from tests.pipeline.usage_files import NOON_MS, put, usage

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(3600)]

HOUR_MS = 3_600_000
TABLES = ("usage", "rollup", "recommendation", "replay")


def weir(*arguments: str, env: dict[str, str]) -> str:
    """Run `weir pipeline`, and return its output."""
    command = [sys.executable, "-m", "weir.cli", "pipeline", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def nightly(root: Path, files: Path, master: str, env: dict[str, str]) -> None:
    """Run all jobs that write results."""
    jobs = (
        f"ingest --files {files} --once",
        "rollup",
        f"recommend --output {root}/new.toml --what-if",
        f"report --output {root}/report.html",
    )
    weir("nightly", "--lake", f"{root}/lake", "--master", master, "--driver-memory", "1GiB", *jobs, env=env)


def test_jobs_at_a_standalone_master_write_the_tables_of_local_jobs(tmp_path: Path) -> None:
    """Spark ignores a wheel in --py-files: the documented command left the executors without Weir."""
    files, here, there = (tmp_path / name for name in ("usage", "here", "there"))
    use = {"api": "produce", "requests": 50, "interval_ms": 10_000, "charged_bytes": 20_000_000}
    lines = [
        msgspec.json.encode(msgspec.json.decode(usage(NOON_MS + hour * HOUR_MS, name)) | use)
        for hour in range(30)
        for name in "abc"
    ]
    put(files, "usage-weir-1-00000000.jsonl", *lines)
    for directory in (here, there, tmp_path / "workers"):
        directory.mkdir()
    python = bare_python(tmp_path / "bare")
    with standalone(tmp_path / "workers") as master:
        env = environment(python)
        nightly(there, files, master, env)
        jars = weir("jars", env=env).strip()
        command = [str(SUBMIT), "--master", master, "--jars", jars, str(ENTRY)]
        submitted = subprocess.run(
            [
                *command,
                "ingest",
                "--lake",
                f"{there}/lake-of-submit",
                "--files",
                str(files),
                "--once",
                "--json",
            ],
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
        assert submitted.returncode == 0, submitted.stderr
        assert json.loads(submitted.stdout)["wrote"]["usage records"] == 90
    nightly(here, files, "local[2]", dict(os.environ))
    for table in TABLES:
        of_local, of_cluster = (sorted(map(str, rows(root / "lake", table))) for root in (here, there))
        assert of_cluster == of_local
    old, new = ((root / "new.toml").read_text().splitlines()[1:] for root in (here, there))
    assert new == old
