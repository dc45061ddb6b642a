"""Start `weir` as a process; list this machine's processes from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def children_of(parent: int) -> list[int]:
    """Return the pids of a process's children; fail the test if there is no /proc."""
    if not Path("/proc/self/stat").exists():
        pytest.fail("this test finds processes in /proc, which this system has not")
    return [int(stat[0]) for stat in stats() if stat[3] == str(parent)]


def is_running(pid: int) -> bool:
    """Return True if the process has not ended; a zombie has ended."""
    return any(stat[0] == str(pid) and stat[2] != "Z" for stat in stats())


def stats() -> list[list[str]]:
    """Return the fields pid, name, state, parent, ... of every process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = path.read_text().rpartition(") ")
        except OSError:
            continue  # the process has just ended
        pid, _, name = before.partition(" (")
        found.append([pid, name, *after.split()])
    return found


def start(*arguments: str, tmp_path: Path) -> subprocess.Popen[str]:
    """Start `weir` with a temporary directory of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "weir.cli", *arguments],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
