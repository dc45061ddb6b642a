"""The pipeline's jobs as an operator runs them, each a process of its own; the same roll-up without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

JOBS: Final = ("ingest", "rollup", "recommend", "replay", "report")
ENGINES: Final = ("polars", "pandas")
QUOTAS: Final = """\
[[quota]]
client_id = "default"
producer_byte_rate = 100000
consumer_byte_rate = 100000
"""
"""What is replayed: low enough for the busiest."""


class JobError(Exception):
    """A job did not end well: what it said."""


class _Outcome(msgspec.Struct):
    seconds: float


@dataclass(frozen=True, slots=True)
class Stand:
    """Where one size's data are, and what jobs run with."""

    root: Path
    master: str
    driver_memory: str
    timeout_s: float

    @property
    def lines(self) -> Path:
        """JSON lines, as Weir writes them."""
        return self.root / "lines"

    @property
    def lake(self) -> Path:
        """The tables, with generated usage."""
        return self.root / "lake"


def run_job(stand: Stand, job: str) -> float:
    """Run one; gives the seconds that it says it took, without Spark's start. Raises JobError."""
    command = [
        sys.executable,
        "-m",
        "cli",
        "pipeline",
        job,
        "--json",
        "--master",
        stand.master,
        *_options(stand, job),
    ]
    submit = f"--driver-memory {stand.driver_memory} pyspark-shell"
    out = _output(command, stand.timeout_s, {**os.environ, "PYSPARK_SUBMIT_ARGS": submit})
    return msgspec.json.decode(out, type=_Outcome).seconds


def _options(stand: Stand, job: str) -> list[str]:
    lake = ["--lake", str(stand.lake)]
    match job:
        case "ingest":
            ingested = str(stand.root / "ingested")
            return ["--lake", ingested, "--files", str(stand.lines), "--kind", "usage", "--once"]
        case "recommend":
            return [*lake, "--output", str(stand.root / "recommended.toml"), "--force"]
        case "replay":
            quotas = stand.root / "quotas.toml"
            quotas.write_text(QUOTAS, "utf-8")
            return [*lake, str(quotas)]
        case "report":
            return [*lake, "--output", str(stand.root / "report.html"), "--force"]
        case _:
            return [*lake, "--all"]


class Plain(msgspec.Struct):
    """What an engine in one process took."""

    seconds: float
    rss_mb: float


def run_plain(stand: Stand, engine: str, threads: int) -> Plain:
    """The roll-up by polars or pandas, its result in `result_of`. Raises JobError."""
    result_of(stand, engine).mkdir()
    command = [sys.executable, "-m", "bench.pipeline.plain", engine]
    command += [str(stand.lake / "usage"), str(result_of(stand, engine))]
    out = _output(command, stand.timeout_s, {**os.environ, "POLARS_MAX_THREADS": str(threads)})
    return msgspec.json.decode(out, type=Plain)


def result_of(stand: Stand, engine: str) -> Path:
    """Where an engine's roll-ups are."""
    return stand.root / engine


def _output(command: list[str], timeout_s: float, environment: dict[str, str]) -> bytes:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise JobError(f"not done after {timeout_s:g} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise JobError(lines[-1] if lines else f"exit code {done.returncode}")
    return done.stdout
