"""`weir pipeline …` as its users run it, each job in a process of its own; tables as pyarrow sees them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow.dataset

JOB_S = 240.0


class Ended(NamedTuple):
    exit_code: int
    output: str
    errors: str


def command(job: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weir.cli", "pipeline", job, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=JOB_S,
    )


def commands(*all_arguments: Sequence[str], directory: Path) -> list[Ended]:
    """Run several `weir …` in one process, which has one JVM: seconds less for each."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.pipeline_worker", str(directory)],
        input=msgspec.json.encode(all_arguments),
        capture_output=True,
        cwd=Path(__file__).resolve().parents[2],
        check=False,
        timeout=2 * JOB_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[Ended])


def outcome(job: str, lake: Path, *arguments: str) -> dict[str, Any]:
    done = command(job, "--lake", str(lake), "--master", "local[2]", "--json", *arguments)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    said: dict[str, Any] = msgspec.json.decode(done.stdout)
    return said


def rows(lake: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        pyarrow.dataset.dataset(lake / table, partitioning="hive").to_table().to_pylist()
    )
    return found
