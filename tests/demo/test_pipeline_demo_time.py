"""`make pipeline-demo` ends within two minutes, and makes the report and the proposals that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.demo.cpu_time import measured
from weir.demo.client_specs import CLIENTS
from weir.quotas import DEFAULT, parse

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PROMISED_S: Final = 120.0
LOAD_S: Final = 30.0
"""Time (s) during which the clients send."""


def test_make_pipeline_demo_makes_report_and_proposals_within_two_minutes(tmp_path: Path) -> None:
    """On a quiet machine the first bound is exact; the demonstration took 57 s. On a busy one it is weak:
    other processes delay the demonstration by at most their CPU time. There the second bound matters: on one
    free core, the jobs take at most their CPU time, 43 s with the clients on a busy machine of two cores.
    """
    demo = measured(["make", "pipeline-demo"], {"TMPDIR": str(tmp_path)}, timeout_s=800)
    assert demo.exit_code == 0, demo.output
    assert demo.wall_s - demo.others_s <= PROMISED_S, demo
    assert LOAD_S + demo.cpu_s <= PROMISED_S, demo

    told = re.search(r"Everything is put into (.*), and stays there\.", demo.output)
    assert told, demo.output
    directory = Path(told[1])
    assert f"The report: {directory / 'report.html'}\n" in demo.output
    assert re.search(r"^Passed: clients were told to wait [1-9][\d.]* s in all\.", demo.output, re.MULTILINE)
    page = (directory / "report.html").read_text()
    assert all(spec.client_id in page for spec in CLIENTS)
    proposed = parse((directory / "recommended.toml").read_text())
    entries = re.search(r"(\d+) entries +(\S+recommended\.toml)$", demo.output, re.MULTILINE)
    assert entries, demo.output
    assert Path(entries[2]) == directory / "recommended.toml"
    named = {entity for entity, _key in proposed.values if entity.client_id is not DEFAULT}
    assert int(entries[1]) == len(named)
