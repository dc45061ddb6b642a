"""The examples in the docstrings and in docs/quotas.md run."""

import doctest
import importlib
from pathlib import Path

import pytest

MODULES = ["bucket", "names", "quota_file", "rate", "simple_rate", "throttle"]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(f"quotas.{module}"))
    assert failed == 0
    assert attempted > 0


def test_examples_of_the_page() -> None:
    page = Path(__file__).parents[2] / "docs" / "quotas.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0
    assert attempted > 0
