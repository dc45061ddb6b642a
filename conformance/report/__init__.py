"""Reports of findings: equal ones counted together, as JSON, as JUnit XML, and compared with a baseline.

- `groups`: findings with the same key are one group with its first finding and their number. A capture may
  have millions of findings, and a client repeats its defects.
- `junit`: a test case per rule.
"""

from __future__ import annotations

from weir.conformance.report.groups import Group, Groups, Report, parse_report
from weir.conformance.report.junit import junit

__all__ = ["Group", "Groups", "Report", "junit", "parse_report"]
