"""Reports of `verify` and `probe`: as JSON, JUnit XML, SARIF and HTML, and compared with a baseline.

- `groups`: findings with the same key are one group with its first finding and their number. A capture may
  have millions of findings, and a client repeats its defects. `probed`: results of a probe.
- `junit`: a test case per rule, or per case of a probe.
- `sarif`: a result per group of findings, or per failed case.
- `page`: the HTML page, which needs no network (Jinja2, optional). `verify_page` and `probe_page` fill it,
  `matrix` is its table of APIs and versions.
- `datasheet`: measured quotas of several targets beside each other.
- `text`: peers choose texts freely; these functions make them safe to show.
"""

from __future__ import annotations

from weir.conformance.report.datasheet import rows, sheet_page
from weir.conformance.report.groups import (
    Checked,
    FindingGroup,
    Groups,
    VerifyReport,
    parse_report,
    report_json,
    totals,
)
from weir.conformance.report.junit import junit, probe_junit
from weir.conformance.report.page import ToolMissingError, check_tool, render
from weir.conformance.report.probe_page import probe_page
from weir.conformance.report.probed import CaseVerdict, Probed, ProbeReport, alike, probe_report
from weir.conformance.report.sarif import probe_sarif, sarif
from weir.conformance.report.text import MESSAGE_MAX, counted, ranges, size, visible
from weir.conformance.report.verify_page import spoken, verify_page

__all__ = [
    "MESSAGE_MAX",
    "CaseVerdict",
    "Checked",
    "FindingGroup",
    "Groups",
    "ProbeReport",
    "Probed",
    "ToolMissingError",
    "VerifyReport",
    "alike",
    "check_tool",
    "counted",
    "junit",
    "parse_report",
    "probe_junit",
    "probe_page",
    "probe_report",
    "probe_sarif",
    "ranges",
    "render",
    "report_json",
    "rows",
    "sarif",
    "sheet_page",
    "size",
    "spoken",
    "totals",
    "verify_page",
    "visible",
]
