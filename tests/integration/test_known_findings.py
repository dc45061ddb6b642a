"""The judgement of recorded sessions: whose finding it is, and whether the docs explain it."""

from __future__ import annotations

from tests.integration.known_findings import ANY, KNOWN, PAGE


def test_the_page_explains_each_known_finding() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    for known in KNOWN:
        api = "any" if known.api == ANY else known.api
        assert [row for row in rows if row.startswith(f"| {known.client} | `{known.rule}` | {api}")], known
