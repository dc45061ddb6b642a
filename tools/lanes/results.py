"""Results of lanes, read from their JUnit files, and their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

REPORTS: Final = Path(__file__).parents[2] / "build" / "junit"
CHOSEN: Final = REPORTS / "again.txt"
"""File with the names of the tests of a second run, one a line."""
OUT_OF_TIME: Final = "the time of --until was over"
"""Reason for skipping a test that would have begun too late."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test that was run, or skipped."""

    node_id: str
    seconds: float
    outcome: str
    """Result of the test: passed, failed, or skipped."""
    detail: str = ""
    """Reason for skipping the test; "" if it was run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one lane."""

    name: str
    cases: tuple[Case, ...]
    seconds: float
    ok: bool
    """True if the lane's command succeeded; it may fail although no test has failed."""
    note: str = ""
    repeat: str = ".venv/bin/python -m pytest"
    """Command that runs a test of the lane again if the test's name is added."""
    alone: Callable[[Sequence[str]], list[str]] | None = None
    """Function that returns the command that runs the tests named in `CHOSEN` without neighbours, with these
    options of pytest; None if the lane has no tests.
    """
    is_complete: bool = False
    """True if all tests of the lane were run, whether they failed or not."""
    passed_alone: tuple[str, ...] = ()
    """Tests that failed beside others, and passed when they ran again without neighbours."""

    def count(self, outcome: str) -> int:
        """Return the number of the lane's tests with this result."""
        return sum(case.outcome == outcome for case in self.cases)


def read_cases(report: Path) -> tuple[Case, ...]:
    """Return the tests in a JUnit file of pytest's. Raises OSError, ET.ParseError."""
    # A file that our own pytest has just written, so nothing hostile is in it.
    root = ET.parse(report).getroot()  # noqa: S314
    return tuple(_cases(root.iter("testcase")))


def _cases(elements: Iterable[ET.Element]) -> Iterator[Case]:
    found: dict[str, Case] = {}
    for element in elements:
        case = _case(element)
        earlier = found.get(case.node_id)
        # pytest writes a second element for a test that has passed and whose teardown has failed.
        if earlier is None or earlier.outcome == "passed":
            found[case.node_id] = case
    return iter(found.values())


def _case(element: ET.Element) -> Case:
    module, name = element.get("classname", "").replace(".", "/"), element.get("name", "")
    node_id = f"{module}.py::{name}" if module else f"{name.replace('.', '/')}.py"  # could not be collected
    outcome, detail = "passed", ""
    for child in element:
        if child.tag in ("failure", "error"):
            outcome = "failed"
        elif child.tag == "skipped":
            outcome, detail = "skipped", child.get("message", "")
    return Case(node_id, float(element.get("time", "0")), outcome, detail)


def slowest(outcomes: Iterable[Outcome], count: int) -> list[tuple[str, Case]]:
    """Return the tests that took longest, with their lanes' names, longest first."""
    cases = [(outcome.name, case) for outcome in outcomes for case in outcome.cases]
    return sorted(cases, key=lambda each: -each[1].seconds)[:count]


def plain_counts(outcomes: Iterable[Outcome]) -> str:
    """Return the closing line, such as "4821 passed, 0 failed, 3 skipped"."""
    every = list(outcomes)
    counts = {word: sum(outcome.count(word) for outcome in every) for word in ("passed", "failed", "skipped")}
    return ", ".join(f"{count} {word}" for word, count in counts.items())
