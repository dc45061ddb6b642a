"""The profiles of Hypothesis: the same examples in `make test`, new ones in `make test-all`, also in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBE = """
from hypothesis import settings

from tests.properties import examples


def test_probe():
    now = settings()
    name, count = settings.get_current_profile_name(), examples(10).max_examples
    print(name, now.derandomize, now.database is None, count)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ci", ["", "true"], ids=["without-ci", "with-ci"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "repeatable True True 5"),
        (["--hypothesis-profile=exploring"], "exploring False False 20"),
        (["-p", "tools.mutants.plugin"], "mutants True True 5"),
    ],
    ids=["repeatable", "exploring", "mutants"],
)
def test_a_profile_is_in_force_with_and_without_ci(
    tmp_path: Path, options: list[str], expected: str, ci: str
) -> None:
    (tmp_path / "test_probe.py").write_text(PROBE)
    (tmp_path / "conftest.py").write_text(
        "from tests.properties import register_profiles\n\nregister_profiles()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {
        "PYTHONPATH": str(ROOT)
    }
    environment |= {"CI": ci} if ci else {}
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *options]
    said = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "test_probe.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert expected in said.splitlines(), said
