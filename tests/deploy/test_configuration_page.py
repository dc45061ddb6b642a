"""docs/reference/configuration.md has every key; examples in docs and deploy have no other keys."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from weir.cli.settings.sections import SECTIONS
from weir.proxy.config.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")


def test_the_configuration_page_has_one_row_for_each_key() -> None:
    keys = {field.name for field in msgspec.structs.fields(Settings)}
    page = PAGE[: PAGE.index("## The quota file")]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == keys


def test_the_configuration_page_lists_keys_under_the_headings_of_the_help() -> None:
    keys = {field.name for field in msgspec.structs.fields(Settings)}
    listed = {
        part.partition("\n")[0]: set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))
        for part in PAGE[: PAGE.index("## The quota file")].split("\n### ")[1:]
    }
    assert listed == {heading: set(names) & keys for heading, names in SECTIONS.items()}


def test_the_configuration_page_names_the_defaults() -> None:
    defaults = {field.name: field.default for field in msgspec.structs.fields(Settings)}
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE[: PAGE.index("## The quota file")], re.MULTILINE)
    for key, told in rows:
        default = defaults[key]
        if default == "":
            assert told.startswith(("(", "the 100 ports")), key
        else:
            shown = str(default).lower() if isinstance(default, bool) else str(default)
            assert told.strip("`").split(" (")[0] in {shown, shown.removesuffix(".0")}, key


OTHER_FILES: Final = frozenset({"quota", "replication", "apis", "currency"})
"""Keys of quota files, of tables of costs and of price lists."""


def test_every_configuration_in_the_documentation_has_keys_and_values_that_are_accepted() -> None:
    examples = [
        (path.name, tomllib.loads(text))
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        for text in re.findall(r"^```toml\n(.*?)^```$", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    ]
    pages = set()
    for page, example in examples:
        if not OTHER_FILES & example.keys():
            msgspec.convert(example, Settings)
            pages.add(page)
    assert pages >= {"calibration.md", "configuration.md", "management.md", "tls.md", "usage.md"}


def test_keys_in_comments_of_the_shipped_configuration_are_accepted() -> None:
    shipped = (ROOT / "deploy" / "config" / "weir.toml").read_text("utf-8")
    uncommented, count = re.subn(r"^# (\w+ = )", r"\1", shipped, flags=re.MULTILINE)
    assert count >= 7
    msgspec.convert(tomllib.loads(uncommented), Settings)
