"""Reports of `weir probe`: verdicts, JUnit XML and the HTML page."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.conformance.report.pages import Parsed
from tests.conformance.report.samples import result, run
from weir.conformance.probe.case import CaseOutcome
from weir.conformance.probe.expectations import differences
from weir.conformance.report import CaseVerdict, probe_junit, probe_page, probe_report, render
from weir.conformance.report.page import PAGE_MAX

FINE = result("Fetch/v9/minimal")
HANGS = result("Fetch/v9/lying-length", CaseOutcome.HUNG, message="The target hangs; it should close.")
ERRS = result("Metadata/v4/minimal", CaseOutcome.ERROR, [3, 17], "The target answers error 17.")


def test_failures_of_the_baseline_are_known_unless_their_outcome_differs() -> None:
    known = {(HANGS.case, "hung"), (ERRS.case, "error 3")}
    report = probe_report(run(FINE, HANGS, ERRS), known)
    assert [one.verdict for one in report.cases] == [
        CaseVerdict.PASSED,
        CaseVerdict.KNOWN,
        CaseVerdict.FAILED,
    ]


def test_expected_outcomes_decide_alone() -> None:
    expected = {FINE.case: "closed", HANGS.case: "hung", "Fetch/v9/gone": "answer", ERRS.case: "error 3 17"}
    found = run(FINE, HANGS, ERRS)
    report = probe_report(found, wrong=differences(found.results, expected))
    assert [one.verdict for one in report.cases] == [CaseVerdict.FAILED, CaseVerdict.KNOWN, CaseVerdict.KNOWN]
    assert report.cases[0].message == "The outcome is answer, the expected one is closed."
    assert report.missing == ["Fetch/v9/gone"]


def test_junit_has_a_test_per_case_and_the_command_that_repeats_a_failure() -> None:
    report = probe_report(run(FINE, HANGS, ERRS), {(HANGS.case, "hung")})
    suite = ET.fromstring(probe_junit(report))  # noqa: S314  # our own text
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    names = [(case.get("classname"), case.get("name")) for case in suite]
    assert names[0] == ("weir.probe.Fetch.v9", "Fetch/v9/minimal")
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "The target answers error 17."
    assert failure.text == f"error 3 17: {ERRS.repeat}"


def test_junit_of_hostile_texts_is_xml() -> None:
    hostile = result("Fetch/v9/\x00<&\ud800", CaseOutcome.CLOSED, message="\x1b]]>\x00")
    (case,) = ET.fromstring(probe_junit(probe_report(run(hostile))))  # noqa: S314  # our own text
    assert case.get("name") == r"Fetch/v9/\x00<&\ud800"


def test_page_shows_failures_with_their_versions_and_commands() -> None:
    others = [
        result(f"Fetch/v{version}/lying-length", CaseOutcome.HUNG, message=HANGS.message)
        for version in (10, 12)
    ]
    parsed = Parsed(render(probe_page(probe_report(run(FINE, HANGS, *others)))))
    assert "3 of 4 cases failed" in parsed.text
    assert "v9-v10, v12" in parsed.text
    assert parsed.tags.count("article") == 1
    assert all(one.repeat in parsed.text for one in (HANGS, *others))


def test_page_escapes_texts_of_the_target() -> None:
    hostile = result("Fetch/v9/x", CaseOutcome.CLOSED, message="</script><script>alert(1)\u202e")
    parsed = Parsed(render(probe_page(probe_report(run(hostile, notes=["<b>note</b>"])))))
    assert parsed.tags.count("script") == 1
    assert r"alert(1)\u202e" in parsed.text
    assert "<b>note</b>" in parsed.words
    assert parsed.networked() == []


@pytest.mark.slow
def test_page_of_many_cases_stays_small() -> None:
    results = [
        result(
            f"Fetch/v{number % 18}/{'x' * 30}-{number}",
            CaseOutcome.HUNG,
            message=chr(97 + number % 26) * number,
        )
        for number in range(6000)
    ]
    assert len(render(probe_page(probe_report(run(*results))))) <= PAGE_MAX


def test_a_run_with_a_missing_expected_case_does_not_look_like_success() -> None:
    found = run(FINE)
    report = probe_report(
        found, wrong=differences(found.results, {FINE.case: "answer", "Fetch/v9/gone": "answer"})
    )
    parsed = Parsed(render(probe_page(report)))
    assert "Not run: Fetch/v9/gone" in parsed.words
    assert ("header", "class", "top error") in parsed.attributes
