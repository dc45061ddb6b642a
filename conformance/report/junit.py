"""JUnit XML: for `verify` a test case per rule, for `probe` one per case. Known failures pass."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from weir.conformance.report.probed import CaseVerdict
from weir.conformance.report.text import visible
from weir.conformance.verify.rules import RULES, R

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weir.conformance.report.groups import FindingGroup
    from weir.conformance.report.probed import ProbeReport


def junit(groups: Sequence[FindingGroup], without: Collection[str] = ()) -> bytes:
    """Return the XML of findings: a rule fails if it has new errors or warnings. `without`: names of rules
    that were switched off; they count as skipped.
    """
    by_rule: dict[R, list[FindingGroup]] = {}
    for group in groups:
        if group.fails:
            by_rule.setdefault(group.first.rule, []).append(group)
    suite = _suite("weir verify", len(RULES), len(by_rule))
    suite.set("skipped", str(len(set(without))))
    for name, rule in RULES.items():
        case = ET.SubElement(suite, "testcase", classname="weir.verify", name=name.value)
        if name in by_rule:
            _fail(case, rule.explanation, "\n".join(map(_line, by_rule[name])))
        elif name in without:
            ET.SubElement(case, "skipped")
    return _xml(suite)


def probe_junit(report: ProbeReport) -> bytes:
    """Return the XML of a probe. A failure that is known passes; an expected case that was not run fails."""
    tests = len(report.cases) + len(report.missing)
    suite = _suite("weir probe", tests, report.count(CaseVerdict.FAILED) + len(report.missing))
    for one in report.cases:
        result = one.result
        place = f"weir.probe.{visible(result.api)}.v{result.version}"
        case = ET.SubElement(suite, "testcase", classname=place, name=visible(result.case))
        if one.verdict is CaseVerdict.FAILED:
            _fail(case, visible(one.message), visible(f"{result.summary}: {result.repeat}"))
    for name in report.missing:
        case = ET.SubElement(suite, "testcase", classname="weir.probe", name=visible(name))
        _fail(case, "The expected case was not run.", "")
    return _xml(suite)


def _suite(name: str, tests: int, failures: int) -> ET.Element:
    return ET.Element("testsuite", name=name, tests=str(tests), failures=str(failures))


def _fail(case: ET.Element, message: str, text: str) -> None:
    failure = ET.SubElement(case, "failure", message=message)
    failure.text = text


def _xml(suite: ET.Element) -> bytes:
    ET.indent(suite)
    out: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return out


def _line(group: FindingGroup) -> str:
    one = group.first
    return f"{one.api} v{one.version} {visible(one.path)}: {visible(one.message)} ({group.count} times)"
