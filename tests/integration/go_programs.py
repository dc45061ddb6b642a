"""Programs of Go's client libraries (`tests/go`), built once per session."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

__all__ = ["go_programs"]

SOURCES: Final = Path(__file__).parents[1] / "go"
BUILD_S: Final = 900


@pytest.fixture(scope="session")
def go_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the built programs. Their modules come from the Go module proxy."""
    if shutil.which("go") is None:
        pytest.skip("needs Go (golang.org)")
    programs = tmp_path_factory.mktemp("go")
    subprocess.run(["go", "build", "-o", programs, "./..."], cwd=SOURCES, check=True, timeout=BUILD_S)
    return programs
