"""SARIF of `weir verify` and `weir probe`.

The output was checked against the schema of OASIS. Here are the properties that it requires.
"""

from __future__ import annotations

import json
from typing import Any

from tests.conformance.report.samples import finding, result, run
from weir.conformance.probe.case import CaseOutcome
from weir.conformance.probe.expectations import differences
from weir.conformance.report import Groups, probe_report, probe_sarif, sarif
from weir.conformance.verify import RULES, R


def checked(data: bytes) -> list[dict[str, Any]]:
    """Return the results of the one run, after checks of required properties and of references to rules."""
    log = json.loads(data)
    assert log["version"] == "2.1.0"
    (only,) = log["runs"]
    rules = [rule["id"] for rule in only["tool"]["driver"]["rules"]]
    assert only["tool"]["driver"]["name"].startswith("weir ")
    assert len(rules) == len(set(rules))
    for each in only["results"]:
        assert each["message"]["text"]
        assert each["ruleId"] in rules
        assert each["level"] in ("error", "warning", "note")
        place = each["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] == 1
        assert place["artifactLocation"]["uri"].isascii()
    results: list[dict[str, Any]] = only["results"]
    return results


def test_findings_are_results_with_their_rule_level_and_number() -> None:
    groups = Groups([finding(R.BATCH_TIMESTAMPS).key])
    for one in (finding(), finding(), finding(R.BATCH_TIMESTAMPS), finding(R.TAG_DEFAULT, found="\u202e")):
        groups.add(one, "dir/ä.weircap")
    data = sarif(groups.sorted())
    assert {rule["id"] for rule in json.loads(data)["runs"][0]["tool"]["driver"]["rules"]} == {*RULES}
    found = {each["ruleId"]: each for each in checked(data)}
    assert {rule: each["level"] for rule, each in found.items()} == {
        "batch-crc": "error",
        "batch-timestamps": "warning",
        "tag-default": "note",
    }
    assert (found["batch-crc"]["occurrenceCount"], found["batch-crc"]["baselineState"]) == (2, "new")
    assert found["batch-timestamps"]["baselineState"] == "unchanged"
    assert found["batch-crc"]["partialFingerprints"] == {"weirKey/v1": "batch-crc/Produce/9/records"}
    uri = found["batch-crc"]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "dir/%C3%A4.weircap"


def test_failed_and_missing_cases_of_a_probe_are_results() -> None:
    cases = [result("Fetch/v9/a"), result("Fetch/v9/b", CaseOutcome.HUNG, message="The target hangs.")]
    (failed,) = checked(probe_sarif(probe_report(run(*cases))))
    assert (failed["message"]["text"], failed["baselineState"]) == ("The target hangs.", "new")
    wrong = differences(cases, {"Fetch/v9/a": "answer", "Fetch/v9/b": "hung", "Fetch/v9/c": "answer"})
    found = checked(probe_sarif(probe_report(run(*cases), wrong=wrong)))
    assert [(one["ruleId"], one.get("baselineState")) for one in found] == [
        ("case", "unchanged"),
        ("missing-case", None),
    ]
