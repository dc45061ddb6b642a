"""A newcomer's client: verify names its mistakes, and has no finding once they are mended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.trial.run import BROKER, SETTINGS
from tests.kafka import Cluster

pytestmark = [pytest.mark.broker]

HERE: Final = Path(__file__).parent
FOUND: Final = (
    "batch-crc",
    "correlation-id-reused",
    "null-not-allowed",
    "request-trailing-bytes",
    "tag-order",
    "throttle-ignored",
    "varint-not-minimal",
    "version-not-offered",
)
"""Rules that the broken client breaks in its first run; wrong checksums hide the other two mistakes."""


def verified(client: str, upstream: str) -> tuple[int, str]:
    """Run a client, and return (exit code, output) of weir verify."""
    command = [sys.executable, "-m", "tests.conformance.trial.run", str(HERE / client)]
    done = subprocess.run(
        [*command, "--upstream", upstream], capture_output=True, text=True, timeout=240, check=False
    )
    return done.returncode, done.stdout


def test_a_broken_client_is_told_its_mistakes_and_a_mended_one_has_none() -> None:
    with Cluster(BROKER, settings=SETTINGS) as cluster:
        code, output = verified("broken_client.py", cluster.bootstrap)
        assert code == 1
        assert [rule for rule in FOUND if f" {rule}, " not in output] == []
        code, output = verified("mended_client.py", cluster.bootstrap)
        assert (code, "no findings" in output) == (0, True), output
