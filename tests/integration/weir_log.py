"""What a Weir under test has logged, and a quota that gives it nothing to complain about."""

from __future__ import annotations

import json

GENEROUS = """
[[quota]]
client_id = "<default>"
producer_byte_rate = 1000000000
consumer_byte_rate = 1000000000
"""
"""A quota that is charged with every request and never exceeded."""


def entries(log: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def assert_no_complaint(log: str) -> None:
    assert [entry for entry in entries(log) if entry["level"] in ("warning", "error")] == []
