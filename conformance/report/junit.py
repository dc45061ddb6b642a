"""JUnit XML: a test case per rule, which fails if the rule has new errors or warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from weir.conformance.verify.rules import RULES, R

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weir.conformance.report.groups import Group


def junit(groups: Sequence[Group], without: Collection[str] = ()) -> bytes:
    """Return the XML. `without`: names of rules that were switched off; they count as skipped."""
    by_rule: dict[R, list[Group]] = {}
    for group in groups:
        if group.fails:
            by_rule.setdefault(group.first.rule, []).append(group)
    suite = ET.Element("testsuite", name="weir verify", tests=str(len(RULES)), failures=str(len(by_rule)))
    suite.set("skipped", str(len(set(without))))
    for name, rule in RULES.items():
        case = ET.SubElement(suite, "testcase", classname="weir.verify", name=name.value)
        if name in by_rule:
            failure = ET.SubElement(case, "failure", message=rule.explanation)
            failure.text = "\n".join(map(_line, by_rule[name]))
        elif name in without:
            ET.SubElement(case, "skipped")
    ET.indent(suite)
    out: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return out


def _line(group: Group) -> str:
    one = group.first
    return f"{one.api} v{one.version} {one.path}: {one.message} ({group.count} times)"
