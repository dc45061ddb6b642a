"""`weir pipeline …` as its users run it, each job in a process of its own; tables as pyarrow sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow.dataset

JOB_S = 240.0
ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    exit_code: int
    output: str
    errors: str


def commands(*all_arguments: Sequence[str], directory: Path) -> list[Ended]:
    """Run several `weir …` in one process, which has one JVM: seconds less for each."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.pipeline_worker", str(directory)],
        input=msgspec.json.encode(all_arguments),
        capture_output=True,
        cwd=ROOT,
        check=False,
        timeout=2 * JOB_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[Ended])


def outcomes(directory: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return what `weir pipeline ARGUMENTS --json`, run in a directory, prints: an object for each job, and
    nothing else.
    """
    done = subprocess.run(
        [sys.executable, "-m", "weir.cli", "pipeline", *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        check=False,
        timeout=JOB_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return [msgspec.json.decode(line) for line in done.stdout.splitlines()]


def rows(lake: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of the files that Delta's log has in the table: maintain leaves others beside them."""
    files: set[str] = set()
    for commit in sorted((lake / table / "_delta_log").glob("*.json")):
        for action in map(msgspec.json.decode, commit.read_bytes().splitlines()):
            if added := action.get("add"):
                files.add(added["path"])
            elif removed := action.get("remove"):
                files.remove(removed["path"])
    paths = [str(lake / table / unquote(file)) for file in sorted(files)]
    found: list[dict[str, Any]] = pyarrow.dataset.dataset(paths, partitioning="hive").to_table().to_pylist()
    return found
