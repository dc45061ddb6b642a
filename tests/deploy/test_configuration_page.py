"""docs/configuration.md speaks of every key, of the places where it may stand, and of every log line."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from proxy.settings import IN_TABLES, Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text("utf-8")
LOGGED = re.compile(r'\b(?:log|audit)\.(?:debug|info|warning|error|exception)\(\s*"([^"]+)"')


def test_the_configuration_page_has_one_row_for_each_key() -> None:
    keys = {field.name for field in msgspec.structs.fields(Settings)}
    page = PAGE[: PAGE.index("## The quota file")]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == keys


def test_every_configuration_tables_key_is_documented_in_its_row() -> None:
    for place, key in IN_TABLES.items():
        table, _, name = place.rpartition(".")
        (row,) = re.findall(rf"^\| `{key}` \|.*$", PAGE, re.MULTILINE)
        assert f"| `[{table}] {name}` |" in row, row


def test_every_log_event_is_documented() -> None:
    logged = {
        event for path in sorted((ROOT / "proxy").rglob("*.py")) for event in LOGGED.findall(path.read_text())
    }
    assert len(logged) > 30
    explained = [
        begin.rstrip("… ") for begin in re.findall(r"`([^`]+)`", PAGE[PAGE.index("## What the log") :])
    ]
    assert {event for event in logged if not any(map(event.startswith, explained))} == set()
