"""Run the pipeline's jobs, and the roll-up by other engines, each in a process of its own."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bench.pipeline.plain import differences

ENGINES: Final = ("polars", "duckdb")
JOBS: Final = ("ingest", "rollup", *ENGINES, "recommend", "replay", "report")
NAME: Final = "quotas.toml"
"""Name of the quota file for the job `replay`."""
QUOTAS: Final = """\
[[quota]]
client_id = "<default>"
producer_byte_rate = 100000
consumer_byte_rate = 100000
"""
"""Quota file for the job `replay`: limits for each client-id, so low that the busiest clients exceed them."""


_SET_CHILD_SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


class JobError(Exception):
    """Raised if a job fails or exceeds its time limit; the message is the last line of the job's standard
    error.
    """


class _Listing(msgspec.Struct):
    rows: list[list[object]]


class _Outcome(msgspec.Struct):
    seconds: float
    listings: list[_Listing] = []


@dataclass(frozen=True, slots=True)
class Stand:
    """Directory of the data for one number of records, and the options with which jobs run."""

    root: Path
    master: str
    driver_memory: str
    timeout_s: float

    @property
    def lines(self) -> Path:
        """Directory of the usage records as JSON lines, in the format that Weir writes."""
        return self.root / "lines"

    @property
    def lake(self) -> Path:
        """Root of the pipeline's tables, which the job `ingest` makes."""
        return self.root / "lake"


def run_job(stand: Stand, job: str) -> tuple[float, float]:
    """Run one job; return the time (s) that the job reports, without Spark's start, and the CPU time (s) of
    all its processes, with Spark's start. Raises JobError, also if a replay has no hours of its quota file,
    or if the result of an engine is not Spark's.
    """
    if job in ENGINES:
        (result := stand.root / job).mkdir()
        command = ["env", "POLARS_MAX_THREADS=2", sys.executable, "-m", "bench.pipeline.plain", job]
        out, cpu_s = _output([*command, str(stand.lake / "usage"), str(result)], stand.timeout_s)
        if wrong := differences(stand.lake / "rollup", result):
            raise JobError(f"rows that differ from Spark's: {wrong}")
        return measured(out, job), cpu_s
    command = [
        sys.executable,
        "-m",
        "weir.cli",
        "pipeline",
        job,
        "--json",
        "--master",
        stand.master,
        "--driver-memory",
        stand.driver_memory,
        *_options(stand, job),
    ]
    out, cpu_s = _output(command, stand.timeout_s)
    return measured(out, job), cpu_s


def measured(out: bytes, job: str) -> float:
    """Return the time (s) in the outcome that a job printed. Raises JobError if a replay has no hours of its
    quota file: then the job has replayed nothing.
    """
    outcome = msgspec.json.decode(out, type=_Outcome)
    if job == "replay" and not any(NAME in row for listing in outcome.listings for row in listing.rows):
        raise JobError(f"no client has a limit in {NAME}: nothing was replayed")
    return outcome.seconds


def _options(stand: Stand, job: str) -> list[str]:
    lake = ["--lake", str(stand.lake)]
    match job:
        case "ingest":
            return [*lake, "--files", str(stand.lines), "--kind", "usage", "--once"]
        case "recommend":
            return [*lake, "--output", str(stand.root / "recommended.toml"), "--force"]
        case "replay":
            quotas = stand.root / NAME
            quotas.write_text(QUOTAS, "utf-8")
            return [*lake, str(quotas)]
        case "report":
            return [*lake, "--output", str(stand.root / "report.html"), "--force"]
        case _:
            return [*lake, "--all"]


def _output(command: list[str], timeout_s: float) -> tuple[bytes, float]:
    """Return the standard output of a command, and the CPU time (s) of its process and all descendants.
    Raises JobError.
    """
    _adopt_orphans()
    before_s = _children_cpu_s()
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise JobError(f"not done after {timeout_s:g} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise JobError(lines[-1] if lines else f"exit code {done.returncode}")
    with suppress(ChildProcessError):  # there are no more
        while True:
            os.wait()
    return done.stdout, _children_cpu_s() - before_s


def _adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent ends, such as Spark's Java: Linux adds the CPU
    time of a process to that of a parent that waits for its end.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
