"""`weir demo --pipeline` as users run it, with the mock cluster."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.demo.process_table import start, stats
from weir.demo.client_specs import CLIENTS
from weir.quotas import parse

DEMO = ("demo", "--pipeline", "--for", "15")
PATIENCE_S = 500.0

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.core
def test_pipeline_demo_runs_all_jobs_and_replays_the_recorded_throttle_time(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    demo = start(*DEMO, "--json", "--directory", str(directory), tmp_path=tmp_path)
    shown, errors = demo.communicate(timeout=PATIENCE_S)
    assert (demo.returncode, errors) == (0, ""), shown
    found: dict[str, Any] = msgspec.json.decode(shown)
    assert found["passed"]
    assert found["recorded_throttle_s"] == pytest.approx(found["replayed_throttle_s"], rel=0.02)
    lower_s, upper_s = found["recommended_throttle_s"]
    assert upper_s is None or lower_s < found["recorded_throttle_s"] < 1.5 * upper_s, "clients are flat out"
    jobs = {job["job"]: job for job in found["jobs"]}
    assert list(jobs) == ["ingest", "rollup", "recommend", "replay", "report"]
    assert jobs["ingest"]["wrote"]["usage records"] == jobs["rollup"]["read"]["records"] > 0
    assert jobs["ingest"]["wrote"]["trace records"] == jobs["replay"]["read"]["requests"] > 0
    assert parse(Path(found["recommended"]).read_text()).values
    report = Path(found["report"]).read_text()
    assert "<html" in report[:1000].lower()
    assert all(spec.client_id in report for spec in CLIENTS)


def test_an_interrupted_pipeline_demo_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    demo = start(*DEMO, tmp_path=tmp_path)
    assert demo.stdout is not None
    while "now Spark" not in (line := demo.stdout.readline()):
        assert line, demo.communicate()
    while not (children := descendants_of(demo.pid)):
        time.sleep(0.01)  # until the subprocess of Java starts
    demo.send_signal(signal.SIGTERM)
    _shown, errors = demo.communicate(timeout=60)
    assert (demo.returncode, errors) == (130, "stopped; nothing is left running\n")
    deadline = time.monotonic() + 20  # Java ends by itself after its parent has ended
    while (left := children & running()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("weir")] == []


def descendants_of(parent: int) -> set[str]:
    """Return the pids of a process's children and their descendants."""
    found = {str(parent)}
    processes = stats()
    while more := {stat[0] for stat in processes if stat[3] in found} - found:
        found |= more
    return found - {str(parent)}


def running() -> set[str]:
    """Return the pids of all processes that have not ended; a zombie has ended."""
    return {stat[0] for stat in stats() if stat[2] != "Z"}
