"""A pytest plugin, `-p tools.mutants.plugin`: which test runs which lines, and for how long.

Under `coverage run`, every line is recorded with the test that it ran in, be it in a thread or a task that
the test has started (coverage's own `dynamic_context` sees none of these). `--seconds-to FILE` writes how
long each test took, null if it has failed. A test is a function, with all its parameters.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import pytest
from coverage import Coverage
from hypothesis import Phase, settings

if TYPE_CHECKING:
    from collections.abc import Generator

EXAMPLES_MEASURED: Final = 20
"""A few show which lines a test runs; to notice a mutant it has all of its own."""

# One failure is enough: no search for the smallest, and the same examples in each run.
settings.register_profile(
    "mutants",
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    max_examples=settings().max_examples if Coverage.current() is None else EXAMPLES_MEASURED,
)
settings.load_profile("mutants")

_seconds: Counter[str] = Counter()
_failed: set[str] = set()


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
