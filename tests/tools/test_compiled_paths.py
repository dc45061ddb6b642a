"""The tests that `make check-compiled` runs: every compiled module has some, and no test runs for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import compiled_paths
from tests.tools.compiled_only import ROOT, compiled_modules


def test_every_compiled_module_is_run_by_a_test_of_the_compiled_lane() -> None:
    """If this fails, a compiled module has no test, or its tests are in a directory outside `TESTED`."""
    run: set[str] = set().union(*map(compiled_paths.modules_run_by, compiled_paths.compiled_paths()))
    assert set(compiled_modules()) - run == set()


def test_the_test_modules_of_compiled_modules_are_in_the_compiled_lane() -> None:
    """Of every compiled module that has a test module of its own name."""
    names = {module.rpartition(".")[2] for module in compiled_modules()}
    files = (file for room in compiled_paths.ROOMS for file in (ROOT / "tests" / room).glob("test_*.py"))
    expected = {
        file.relative_to(ROOT).as_posix() for file in files if file.stem.removeprefix("test_") in names
    }
    assert "tests/protocol/test_unpacked_sizes.py" in expected
    assert expected <= set(compiled_paths.compiled_paths())


def test_modules_that_need_only_constants_and_exceptions_are_not_in_the_compiled_lane() -> None:
    constants_only = {"tests/protocol/test_field_offsets.py", "tests/protocol/test_codec.py"}
    assert constants_only.isdisjoint(compiled_paths.compiled_paths())


@pytest.mark.parametrize(("module", "path"), compiled_paths.ABOUT.items())
def test_a_test_module_about_exceptions_imports_their_module(module: str, path: str) -> None:
    assert f"from {module} import " in Path(ROOT / path).read_text("utf-8")
