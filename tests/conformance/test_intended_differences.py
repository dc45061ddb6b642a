"""The tolerance for differences between Weir and a broker: only the cases and outcomes of the tables."""

from __future__ import annotations

from typing import Final

from tests.conformance.expected import MOCK, RELEASES, expected
from tests.conformance.intended_differences import (
    INTENDED,
    intended_table,
    missing,
    stable,
    unintended,
    unstable_table,
)
from tests.tools.compiled_only import ROOT
from weir.conformance.probe.expectations import Difference

PAGE: Final = ROOT / "docs" / "reference" / "probe-expectations.md"
LONG_FILTER: Final = Difference("DescribeClientQuotas/v1/array-beyond/components", "closed", "error 42")


def between(name: str) -> str:
    """A generated part of the page."""
    return PAGE.read_text("utf-8").split(f"<!-- {name} -->\n")[1].split(f"<!-- end of {name} -->")[0]


def test_the_page_has_the_tables() -> None:
    assert between("intended") == intended_table()
    assert between("unstable") == unstable_table()


def test_the_page_counts_the_cases_of_each_target() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    for target in RELEASES:
        (row,) = (row for row in rows if row.startswith(f"| Kafka {target} |"))
        assert f"| {len(expected(target)):,} |" in row
    assert [row for row in rows if "mock cluster" in row and f"| {len(expected(MOCK)):,}, well" in row]


def test_an_intended_difference_is_tolerated_at_its_releases_and_outcomes_only() -> None:
    assert unintended([LONG_FILTER], "4.2.0") == []
    assert unintended([LONG_FILTER], "1.1.1") == [LONG_FILTER]
    other = Difference(LONG_FILTER.case, "closed", "answer")
    assert unintended([other], "4.2.0") == [other]


def test_an_intended_difference_that_is_not_seen_is_missing() -> None:
    assert missing([LONG_FILTER], "4.2.0") == []
    (row,) = missing([], "4.2.0")
    assert row in INTENDED


def test_an_outcome_that_depends_on_timing_is_tolerated_at_its_release_only() -> None:
    case = "Produce/v4/bytes-negative-nullable/topic_data.partition_data.records"
    raced = Difference(case, "closed", "error -1 3")
    assert stable([raced], "2.8.2") == []
    assert stable([raced], "3.9.1") == [raced]
    hung = Difference(case, "closed", "hung")
    assert stable([hung], "2.8.2") == [hung]
