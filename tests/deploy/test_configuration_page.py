"""docs/configuration.md speaks of every key, and of the places where it may stand."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from proxy.settings import IN_TABLES, Settings

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")


def test_every_key_has_a_row_and_no_row_is_of_another_key() -> None:
    keys = {field.name for field in msgspec.structs.fields(Settings)}
    page = PAGE[: PAGE.index("## The quota file")]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == keys


def test_every_place_in_a_table_is_in_its_keys_row() -> None:
    for place, key in IN_TABLES.items():
        table, _, name = place.rpartition(".")
        (row,) = re.findall(rf"^\| `{key}` \|.*$", PAGE, re.MULTILINE)
        assert f"| `[{table}] {name}` |" in row, row
