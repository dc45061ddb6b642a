"""Processes import what they need: their starts and their memory depend on it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from weir.cli.main import weir

OF_OTHERS = {"calibration", "conformance", "demo", "pipeline"}
"""Rooms that only other commands use."""
LIBRARIES = {
    "confluent_kafka",
    "cryptography",
    "h11",
    "jinja2",
    "prometheus_client",
    "rich",
    "scramp",
    "starlette",
}
"""Libraries that only other commands or some settings use."""
REPORT = "import sys; print(*sys.modules)"


@pytest.mark.parametrize(
    ("statement", "unneeded"),
    [
        ("from weir.cli.main import weir; weir(['run', '--help'], standalone_mode=False)", LIBRARIES),
        ("import weir.proxy.workers.worker", LIBRARIES | {"click", "tomlkit"}),
    ],
    ids=["weir run", "a worker"],
)
def test_nothing_is_imported_that_only_others_need(statement: str, unneeded: set[str]) -> None:
    command = [sys.executable, "-c", f"{statement}; {REPORT}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    imported = {".".join(name.split(".")[:2]) for name in done.stdout.splitlines()[-1].split()}
    assert imported & {*unneeded, *(f"weir.{room}" for room in OF_OTHERS)} == set()


def test_a_mistyped_command_is_told_the_name_that_resembles_it() -> None:
    assert "'run'" in CliRunner().invoke(weir, ["rnu"]).stderr
