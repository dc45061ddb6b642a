"""The benchmark as a whole, with little load and no Kafka behind it: it must not rot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LITTLE = ["--broker", "canned", "--hurry", "--rounds", "1", "--seconds", "0.05", "--idle", "20"]
ROWS = "produce-500kb,fetch-100b,replica-100-small"
"""One of the part with TLS, one of that with SASL, one of replication."""
TARGETS = {
    "cells": {"direct", "weir"},
    "tls": {"weir"},
    "sasl": {"weir-plain", "weir-sasl"},
    "replication": {"direct", "weir", "weir-replication", "weir-throttled"},
    "entities": {"weir-1", "weir-1000"},
}
"""Part of the benchmark → the targets that it measures."""


@pytest.mark.slow
def test_every_part_of_the_benchmark_gives_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, scratch = tmp_path / "results.json", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    command = [sys.executable, "-m", "bench", *LITTLE, "--targets", "direct,weir", "--rows", ROWS]
    tree = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, "--json", str(file)], cwd=tree, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    kept = json.loads(file.read_text())
    assert {part: {cell["target"] for cell in kept[part]} for part in TARGETS} == TARGETS
    assert set(kept["idle"]) == {"weir"}
    for cell in [cell for part in TARGETS for cell in kept[part]]:
        (figures,) = cell["rounds"]
        assert figures["requests"] > 0, cell
        assert (figures["cpu_us"] is None) == (cell["target"] == "direct"), cell
    assert "| idle connections |" in done.stdout
    assert list(scratch.iterdir()) == []
