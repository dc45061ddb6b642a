"""docs/configuration.md speaks of every key, of the places where it may stand, and of every log line."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from proxy.settings import IN_TABLES, Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text("utf-8")
LOGGED = re.compile(r'\b(?:log|audit)\.(?:debug|info|warning|error|exception)\(\s*"([^"]+)"')


def test_every_key_has_a_row_and_no_row_is_of_another_key() -> None:
    keys = {field.name for field in msgspec.structs.fields(Settings)}
    page = PAGE[: PAGE.index("## The quota file")]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == keys


def test_every_place_in_a_table_is_in_its_keys_row() -> None:
    for place, key in IN_TABLES.items():
        table, _, name = place.rpartition(".")
        (row,) = re.findall(rf"^\| `{key}` \|.*$", PAGE, re.MULTILINE)
        assert f"| `[{table}] {name}` |" in row, row


def test_every_line_of_the_log_is_explained_by_its_beginning() -> None:
    logged = {
        event for path in sorted((ROOT / "proxy").rglob("*.py")) for event in LOGGED.findall(path.read_text())
    }
    assert len(logged) > 30
    explained = [
        begin.rstrip("… ") for begin in re.findall(r"`([^`]+)`", PAGE[PAGE.index("## What the log") :])
    ]
    assert {event for event in logged if not any(map(event.startswith, explained))} == set()
