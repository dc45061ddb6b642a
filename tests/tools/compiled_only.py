"""A pytest plugin, `-p tests.tools.compiled_only`: tests run on the compiled modules, or not at all.

Sources that are imported where compiled modules were meant would pass every test and prove nothing.
"""

from __future__ import annotations

import importlib
import runpy
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def compiled_files() -> list[str]:
    """The paths of the modules that a compiled Weir has compiled, relative to the repository."""
    found: list[str] = runpy.run_path(str(ROOT / "setup.py"))["compiled_modules"]()
    return found


def compiled_modules() -> list[str]:
    return [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in compiled_files()]


def pytest_configure() -> None:
    """Import the modules before any test does, and look where they have come from."""
    for name in compiled_modules():
        file = str(importlib.import_module(name).__file__)
        if not file.endswith(tuple(EXTENSION_SUFFIXES)):
            raise pytest.UsageError(
                f"{name} is {file}, which is not compiled: use `make check-compiled`, which sets PYTHONPATH"
            )


def pytest_report_header() -> str:
    names = compiled_modules()
    where = Path(str(importlib.import_module(names[0]).__file__)).parents[1]
    return f"compiled: {len(names)} modules in {where}"
