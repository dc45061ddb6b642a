"""deploy/action: the GitHub action calls Weir with its inputs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tools.compiled_only import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "action" / "action.yml").read_text("utf-8"))
STUB = '#!/bin/sh\nprintf "%s\\n" "$@" "sarif=$WEIR_VERIFY_SARIF" "baseline=$WEIR_VERIFY_BASELINE"\nexit 3\n'


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (
            {"upstream": "a:1", "client": "run 'a b'", "baseline": "known.json"},
            [
                "capture",
                "--upstream",
                "a:1",
                "--",
                "bash",
                "-c",
                "run 'a b'",
                "sarif=weir.sarif",
                "baseline=known.json",
            ],
        ),
        (
            {"upstream": "a:1", "expect": "kafka-3.9.1"},
            [
                "probe",
                "--upstream",
                "a:1",
                "--sarif",
                "weir.sarif",
                "--expect",
                "kafka-3.9.1",
                "sarif=",
                "baseline=",
            ],
        ),
        ({"upstream": "a:1", "client": "run", "expect": "kafka-3.9.1"}, []),
    ],
    ids=["client", "server", "both"],
)
def test_the_action_calls_weir_with_its_inputs(
    tmp_path: Path, inputs: dict[str, str], words: list[str]
) -> None:
    weir = tmp_path / "weir" / "bin" / "weir"
    weir.parent.mkdir(parents=True)
    weir.write_text(STUB)
    weir.chmod(0o755)
    step = ACTION["runs"]["steps"][-1]
    given = {name: each.get("default", "") for name, each in ACTION["inputs"].items()} | inputs
    variables = {name: given[text.split(".")[1].split()[0]] for name, text in step["env"].items()}
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        env={**os.environ, **variables, "RUNNER_TEMP": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == words, done.stderr
    assert done.returncode == (3 if words else 2), "a wrong use, which Weir is not called for"
