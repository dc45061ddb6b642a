"""A pytest plugin that records the lines that each test runs, and the time of each test: `-p
tools.mutants.plugin`.

Under `coverage run`, every line is recorded with the test during which it ran, also in threads and tasks that
the test started; coverage's own `dynamic_context` misses those. `--seconds-to FILE` writes the time (s) of
each test as JSON, null if the test failed. All parameters of a test function count as one test.
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
    """Load the Hypothesis profile `mutants` if the tests' `conftest.py` has registered it."""
    with suppress(InvalidArgument):
        settings.load_profile("mutants")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--seconds-to` to pytest."""
    parser.addoption("--seconds-to", type=Path, help="write the seconds that each test took as JSON")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record, until this test ends, the lines that run and the time that the test takes."""
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
    """Remember a test that fails."""
    if report.failed:
        _failed.add(report.nodeid.partition("[")[0])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the times of all tests to the file of `--seconds-to`."""
    path: Path | None = session.config.getoption("--seconds-to")
    if path is not None:
        path.write_text(json.dumps(_seconds | dict.fromkeys(_failed)), "utf-8")
