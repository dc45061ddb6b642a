"""docs/reference/conformance.md has the table of rules that the registry makes."""

from __future__ import annotations

from typing import Final

from tests.tools.compiled_only import ROOT
from weir.conformance.verify import RULES, R
from weir.conformance.verify.rules import table

BEGIN, END = "<!-- rules -->", "<!-- end of rules -->"
PAGE: Final = ROOT / "docs" / "reference" / "conformance.md"


def test_the_page_of_rules_has_the_table_of_the_registry() -> None:
    """`python -m tests.conformance.test_rules_page` writes it."""
    assert PAGE.read_text() == written(PAGE.read_text())


def test_every_rule_has_a_name_an_explanation_and_a_severity() -> None:
    assert list(RULES) == list(R)
    for rule in RULES.values():
        assert rule.explanation.endswith(".")
        assert "\n" not in rule.explanation


def written(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
