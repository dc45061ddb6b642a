"""The tolerance for differences between Weir and a broker: only the cases and outcomes of the tables."""

from __future__ import annotations

from typing import Final

from tests.conformance.expected import MOCK, RELEASES, expected
from tests.conformance.intended_differences import intended_table, unstable_table
from tests.tools.compiled_only import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "probe-expectations.md"


def between(name: str) -> str:
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
