"""The tolerance for differences between Weir and a broker: only the cases and outcomes of the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.conformance.expected import MOCK, RELEASES, expected
from tests.conformance.intended_differences import intended_table
from tests.tools.compiled_only import ROOT
from weir.conformance.probe.brokers import FAULTS as FAULTS_OF_BROKERS
from weir.conformance.probe.brokers import BrokerFault, fault_table

PAGE: Final = ROOT / "docs" / "reference" / "probe-expectations.md"
FAULTS: Final = PAGE.with_name("malformed-requests.md")


def between(name: str, page: Path = PAGE) -> str:
    return page.read_text("utf-8").split(f"<!-- {name} -->\n")[1].split(f"<!-- end of {name} -->")[0]


def test_the_page_has_the_tables() -> None:
    assert between("intended") == intended_table()
    assert between("faults", FAULTS) == fault_table()


@pytest.mark.parametrize("fault", [one for one in FAULTS_OF_BROKERS if "sasl" not in one.pattern])
def test_each_fault_is_among_the_outcomes_of_its_brokers(fault: BrokerFault) -> None:
    for release in fault.releases:
        assert any(fault.has(case, summary) for case, summary in expected(release).items())


def test_the_page_counts_the_cases_of_each_target() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    for target in RELEASES:
        (row,) = (row for row in rows if row.startswith(f"| Kafka {target} |"))
        assert f"| {len(expected(target)):,} |" in row
    assert [row for row in rows if "mock cluster" in row and f"| {len(expected(MOCK)):,} |" in row]
