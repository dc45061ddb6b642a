"""`weir demo` as users run it, with the mock cluster."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.demo.process_table import children_of, is_running, start

DEMO = ("demo",)

pytestmark = pytest.mark.broker


@pytest.mark.measured
def test_demo_measures_every_rate_near_its_quota(tmp_path: Path) -> None:
    demo = start(*DEMO, "--json", tmp_path=tmp_path)
    shown, errors = demo.communicate(timeout=120)
    assert (demo.returncode, errors) == (0, ""), shown
    found: dict[str, Any] = msgspec.json.decode(shown)
    assert found["passed"]
    by_name = {entity["client_id"]: entity for entity in found["entities"]}
    assert by_name["everywhere"]["brokers"] == 3
    assert by_name["audit"]["throttled_responses"] == 0
    assert all(entity["throttled_responses"] > 0 for name, entity in by_name.items() if name != "audit")
    assert all(entity["rate_without_quotas_bytes_per_s"] > 2_000_000 for entity in found["entities"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_and_no_file(number: signal.Signals, tmp_path: Path) -> None:
    demo = start(*DEMO, tmp_path=tmp_path)
    assert demo.stdout is not None
    while "warming up" not in (line := demo.stdout.readline()):
        assert line, demo.communicate()
    children = children_of(demo.pid)
    assert len(children) == 2
    demo.send_signal(number)
    _shown, errors = demo.communicate(timeout=30)
    assert (demo.returncode, errors) == (130, "stopped; nothing is left running\n")
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.iterdir())


def test_a_killed_demo_leaves_no_process(tmp_path: Path) -> None:
    demo = start(*DEMO, tmp_path=tmp_path)
    assert demo.stdout is not None
    while "warming up" not in (line := demo.stdout.readline()):
        assert line, demo.communicate()
    children = children_of(demo.pid)
    demo.kill()
    demo.communicate()
    deadline = time.monotonic() + 20
    while (left := [pid for pid in children if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
