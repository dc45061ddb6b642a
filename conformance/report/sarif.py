"""SARIF 2.1.0 (OASIS), which code scanning services read: a result per group of findings, or per failed case.

Required are the version, the name of the tool, and the message of each result. GitHub also wants a file and a
line of each: the capture, or the name of the case. Results that the baseline has are "unchanged".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from weir.conformance.report.probed import CaseVerdict
from weir.conformance.report.text import MESSAGE_MAX, visible
from weir.conformance.verify.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weir.conformance.report.groups import FindingGroup
    from weir.conformance.report.probed import Probed, ProbeReport

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_CASE: Final = "case"
"""Rule of all failed cases."""
_MISSING: Final = "missing-case"

Json = dict[str, object]


def sarif(groups: Sequence[FindingGroup]) -> bytes:
    """Return the SARIF of findings, with all rules."""
    rules = [
        _rule(name.value, rule.explanation, rule.severity.value, rule.reference)
        for name, rule in RULES.items()
    ]
    return _log("weir verify", rules, map(_finding, groups))


def probe_sarif(report: ProbeReport) -> bytes:
    """Return the SARIF of a probe: cases that failed, and expected cases that were not run."""
    rules = [
        _rule(_CASE, "The server keeps to Kafka's protocol.", "error", "Kafka's protocol guide"),
        _rule(_MISSING, "The expected case was run.", "error", ""),
    ]
    failed = (one for one in report.cases if one.verdict is not CaseVerdict.PASSED)
    missing = (
        _result(_MISSING, "error", "The expected case was not run.", name, name) for name in report.missing
    )
    return _log("weir probe", rules, [*map(_case, failed), *missing])


def _log(tool: str, rules: Sequence[Json], results: Iterable[Json]) -> bytes:
    run = {"tool": {"driver": {"name": tool, "rules": rules}}, "results": [*results]}
    return msgspec.json.format(msgspec.json.encode({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}))


def _rule(name: str, explanation: str, level: str, reference: str) -> Json:
    text = f"{explanation} {reference}".strip()
    return {
        "id": name,
        "shortDescription": {"text": explanation},
        "help": {"text": text},
        "defaultConfiguration": {"level": level},
    }


def _finding(group: FindingGroup) -> Json:
    one = group.first
    place = " ".join(filter(None, (f"{one.api} v{one.version}" if one.api else "", visible(one.path))))
    found = f" Expected {visible(one.expected)}, found {visible(one.found)}." if one.expected else ""
    text = f"{place}: {visible(one.message)}{found}".removeprefix(": ")
    result = _result(one.rule.value, one.severity.value, text, group.capture or "capture", place)
    result["partialFingerprints"] = {"weirKey/v1": "/".join(map(str, one.key))}
    result["occurrenceCount"] = group.count
    result["baselineState"] = "new" if group.new else "unchanged"
    return result


def _case(probed: Probed) -> Json:
    result = probed.result
    found = _result(_CASE, "error", visible(probed.message, MESSAGE_MAX), result.case, result.case)
    found["partialFingerprints"] = {"weirCase/v1": visible(f"{result.case} {result.summary}")}
    found["baselineState"] = "new" if probed.verdict is CaseVerdict.FAILED else "unchanged"
    return found


def _result(rule: str, level: str, text: str, file: str, place: str) -> Json:
    location: Json = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(visible(file))},
            "region": {"startLine": 1},
        }
    }
    if place:
        location["logicalLocations"] = [{"fullyQualifiedName": visible(place)}]
    return {"ruleId": rule, "level": level, "message": {"text": text}, "locations": [location]}
