"""Processes import what they need: their starts and their memory depend on it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from weir.cli.main import weir

OF_OTHERS = {"weir.calibration", "weir.conformance", "weir.demo", "weir.pipeline"}
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
SERVERS = {
    "confluent_kafka",
    "h11",
    "kazoo",
    "numpy",
    "pandas",
    "polars",
    "pyspark",
    "starlette",
    "textual",
    "trio",
}
"""Libraries that the extra `conformance` does without."""
REPORT = "import sys; print(*sys.modules)"


@pytest.mark.parametrize(
    ("statement", "unneeded"),
    [
        (
            "from weir.cli.main import weir; weir(['run', '--help'], standalone_mode=False)",
            LIBRARIES | OF_OTHERS,
        ),
        ("import weir.proxy.workers.worker", LIBRARIES | OF_OTHERS | {"asyncio", "click", "tomlkit"}),
        ("import weir.cli.verify, weir.cli.probe", SERVERS),
        ("import weir.cli.capture", SERVERS - {"trio"}),
    ],
    ids=["weir run", "a worker", "conformance", "weir capture"],
)
def test_nothing_is_imported_that_only_others_need(statement: str, unneeded: set[str]) -> None:
    command = [sys.executable, "-c", f"{statement}; {REPORT}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    imported = {".".join(name.split(".")[:2]) for name in done.stdout.splitlines()[-1].split()}
    assert imported & unneeded == set()


def test_a_mistyped_command_is_told_the_name_that_resembles_it() -> None:
    assert "'run'" in CliRunner().invoke(weir, ["rnu"]).stderr
