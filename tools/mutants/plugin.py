"""A pytest plugin, `-p tools.mutants.plugin`: which test runs which lines, and for how long.

Under `coverage run`, every line is recorded with the test that it ran in, be it in a thread or a task that
the test has started (coverage's own `dynamic_context` sees none of these). `--seconds-to FILE` writes how
long each test took, null if it has failed. A test is a function, with all its parameters.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pytest
from coverage import Coverage
from hypothesis import settings
from hypothesis.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Generator

_seconds: Counter[str] = Counter()
_failed: set[str] = set()


def pytest_configure() -> None:
    """Load the profile `mutants`, which the tests' own conftest has registered by now, if it has."""
    with suppress(InvalidArgument):
        settings.load_profile("mutants")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--seconds-to", type=Path, help="write the seconds that each test took as JSON")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record what runs from now on for this test."""
    test, begun, measured = item.nodeid.partition("[")[0], perf_counter(), Coverage.current()
    if measured is not None:
        measured.switch_context(test)
    try:
        return (yield)
    finally:
        _seconds[test] += perf_counter() - begun  # type: ignore[assignment]  # a Counter of seconds
        if measured is not None:
            measured.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the tests that fail."""
    if report.failed:
        _failed.add(report.nodeid.partition("[")[0])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the file."""
    path: Path | None = session.config.getoption("--seconds-to")
    if path is not None:
        path.write_text(json.dumps(_seconds | dict.fromkeys(_failed)), "utf-8")
