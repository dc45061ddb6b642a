"""Links between the pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.tools.compiled_only import ROOT

_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
_CODE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(_CODE.sub("", page.read_text("utf-8")))
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in plain}


def broken(page: Path, text: str) -> list[str]:
    """Links of a page whose file or heading does not exist."""
    found = []
    for target in _LINK.findall(_CODE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = page.parent / file if file else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            found.append(target)
    return found


def test_every_link_between_pages_leads_to_a_file_and_a_heading() -> None:
    found = {
        page.relative_to(ROOT).as_posix(): links
        for page in pages()
        if (links := broken(page, page.read_text("utf-8")))
    }
    assert found == {}
