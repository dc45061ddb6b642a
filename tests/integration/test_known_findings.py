"""The judgement of recorded sessions: whose finding it is, and whether the docs explain it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.known_findings import ANY, KNOWN, PAGE, complaints, missing
from tests.integration.recorded import Found
from weir.conformance.events import Side
from weir.conformance.verify import RULES, Finding, R

if TYPE_CHECKING:
    from tests.integration.recorded import Key

NONE: Final[dict[Side, dict[Key, Found]]] = {side: {} for side in Side}


def one(side: Side, rule: R, api: str = "Metadata", version: int = 12) -> dict[Side, dict[Key, Found]]:
    """A capture's findings: one of this side's."""
    found = Finding(rule, RULES[rule].severity, 1, 0, side, api, version, 1, "text", "", 0, "", "", "")
    return NONE | {side: {found.key: Found(found, 1)}}


def test_a_finding_in_weirs_answers_is_weirs_unless_the_broker_has_it_too() -> None:
    wrong = one(Side.SERVER, R.CORRELATION_ID)
    (line,) = complaints("java", wrong, NONE)
    assert line.startswith("Weir answers: error correlation-id Metadata 12")
    (line,) = complaints("java", wrong, wrong)
    assert line.startswith("a broker answers, unknown: error")


def test_a_finding_in_weirs_requests_is_weirs_unless_the_client_has_it_too() -> None:
    wrong = one(Side.CLIENT, R.TAG_ORDER)
    (line,) = complaints("java", NONE, wrong)
    assert line.startswith("Weir asks: error")
    (line,) = complaints("java", wrong, wrong)
    assert line.startswith("java asks, unknown: error")


def test_a_known_finding_is_known_of_its_client_and_version_only() -> None:
    wrong = one(Side.CLIENT, R.REQUEST_TRAILING_BYTES)
    assert complaints("librdkafka", wrong, wrong) == []
    assert len(complaints("java", wrong, wrong)) == 1
    assert len(complaints("librdkafka", one(Side.CLIENT, R.REQUEST_TRAILING_BYTES, version=8), NONE)) == 1


def test_notes_are_no_complaints() -> None:
    assert complaints("java", one(Side.SERVER, R.TAG_DEFAULT), NONE) == []


def test_a_known_finding_that_does_not_come_is_missing() -> None:
    wrong = one(Side.CLIENT, R.REQUEST_TRAILING_BYTES)
    assert missing("librdkafka", "2.8.2", wrong) == []
    assert {known.rule for known in missing("librdkafka", "2.8.2", NONE)} == {R.REQUEST_TRAILING_BYTES}
    assert missing("librdkafka", "1.1.1", NONE) == missing("java", "2.8.2", NONE) == []


def test_the_page_explains_each_known_finding() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    for known in KNOWN:
        api = "any" if known.api == ANY else known.api
        assert [row for row in rows if row.startswith(f"| {known.client} | `{known.rule}` | {api}")], known
