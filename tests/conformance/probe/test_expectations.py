"""Files of expectations: outcomes by kind of request, with versions."""

from __future__ import annotations

import msgspec
import pytest

from weir.conformance.probe.case import CaseOutcome, Result
from weir.conformance.probe.expectations import expectations, parse_expectations


def result(case: str, outcome: CaseOutcome = CaseOutcome.ANSWER, *errors: int) -> Result:
    return Result(case, case.split("/")[0], 0, outcome, list(errors), True, "")


RESULTS = [
    result("Metadata/v10/minimal", CaseOutcome.ERROR, 3, 17),
    result("Metadata/v2/minimal"),
    result("Metadata/v0/minimal"),
    result("Metadata/v1/minimal"),
    result("Metadata/v4/minimal"),
    result("Metadata/version-below", CaseOutcome.CLOSED),
    result("Fetch/v1/array-beyond/topics.partitions", CaseOutcome.CLOSED),
    result("quotas/request-time/Metadata/v9/mute"),
]


def test_a_file_of_expectations_has_a_line_for_each_kind_of_request() -> None:
    assert expectations(RESULTS).decode() == (
        "{\n"
        '"Fetch": {\n'
        ' "array-beyond/topics.partitions": {"closed": "1"}\n'
        "},\n"
        '"Metadata": {\n'
        ' "minimal": {"answer": "0-2,4", "error 3 17": "10"},\n'
        ' "version-below": "closed"\n'
        "},\n"
        '"quotas/request-time/Metadata": {\n'
        ' "mute": {"answer": "9"}\n'
        "}\n"
        "}\n"
    )


def test_expectations_are_read_as_they_were_written() -> None:
    assert parse_expectations(expectations(RESULTS)) == {found.case: found.summary for found in RESULTS}


@pytest.mark.parametrize(
    "text", ["[]", '{"Metadata/v9/minimal": "answer"}', '{"Metadata": {"minimal": {"answer": "nine"}}}']
)
def test_another_file_is_no_file_of_expectations(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse_expectations(text.encode())


def test_versions_that_no_api_has_are_refused_before_each_becomes_a_case() -> None:
    with pytest.raises(msgspec.DecodeError, match="a version above 999"):
        parse_expectations(b'{"Metadata": {"minimal": {"answer": "0-1000000"}}}')
