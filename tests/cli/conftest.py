"""What the tests of several commands need."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from weir.cli.exits import USAGE
from weir.cli.main import main

Misused: TypeAlias = Callable[..., str]


@pytest.fixture
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A quota file with the text `FILE` of the test's module."""
    path = tmp_path / "quotas.toml"
    path.write_text(request.module.FILE)
    return path


@pytest.fixture
def misused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Misused:
    """Call it with the arguments of a `weir` command whose usage is wrong, for its one line."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["weir", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        assert exited.value.code == USAGE
        out, err = capsys.readouterr()
        (line,) = err.splitlines()
        assert out == ""
        assert line.startswith("weir: ")
        return str(line.removeprefix("weir: "))

    return run
