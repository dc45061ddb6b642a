"""docs/reference/configuration.md has every key; examples in docs and deploy have no other keys.

`python -m tests.deploy.test_configuration_page` writes its tables, from the help of the options.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from weir.cli.settings.options import description_of
from weir.cli.settings.sections import SECTIONS
from weir.proxy.config.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "configuration.md"
_TABLE: Final = re.compile(r"(?<=<!-- settings: )([^\n]+) -->\n.*?(?=<!-- end of settings -->)", re.DOTALL)


def table(match: re.Match[str]) -> str:
    keys = {field.name: field for field in msgspec.structs.fields(Settings)}
    lines = [f"{match[1]} -->", "| key | default | meaning |", "| --- | --- | --- |"]
    for key in SECTIONS[match[1]]:
        default = msgspec.to_builtins(keys[key].default)
        shown = str(default).lower() if isinstance(default, bool) else str(default).removesuffix(".0")
        lines.append(f"| `{key}` | {shown and f'`{shown}`'} | {description_of(keys[key])} |")
    return "\n".join(lines) + "\n"


def test_the_configuration_page_has_the_keys_under_the_headings_of_the_help() -> None:
    page = PAGE.read_text("utf-8")
    assert _TABLE.sub(table, page) == page
    assert [match[1] for match in _TABLE.finditer(page)] == list(SECTIONS)


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
    assert count >= 5
    msgspec.convert(tomllib.loads(uncommented), Settings)


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(table, PAGE.read_text("utf-8")), "utf-8")
