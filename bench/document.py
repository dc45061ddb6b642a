"""Replace the tables of an earlier run in a Markdown page, between two marker lines, by the tables of this
run.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

FIGURES: Final = "figures"
"""Name of the section with the figures of requests."""
LINE_MAX: Final = 120
"""Most characters of a line of the documentation, tables aside."""


class DocumentError(Exception):
    """Raised if a page lacks the marker lines between which the figures belong."""


def markers(section: str) -> tuple[str, str]:
    """Return the lines before and behind a section of figures."""
    return f"<!-- {section}: begin -->", f"<!-- {section}: end -->"


def put(file: Path, text: str, section: str = FIGURES) -> None:
    """Replace the text between the marker lines of a section. Raises DocumentError, OSError."""
    file.write_text(replaced(file.read_text(), text, str(file), section))


def check(file: Path, section: str = FIGURES) -> None:
    """Check that the page has the marker lines of a section, before a measurement of minutes. Raises
    DocumentError, OSError.
    """
    replaced(file.read_text(), "", str(file), section)


def replaced(document: str, text: str, where: str, section: str = FIGURES) -> str:
    """Return `document` with `text` between the marker lines of a section; `where` names the document in
    errors. Raises DocumentError.
    """
    opening, closing = markers(section)
    before, begin, rest = document.partition(opening)
    _old, end, after = rest.partition(closing)
    if not begin or not end:
        raise DocumentError(f"{where}: no place for figures; mark it with the lines {opening} and {closing}")
    return f"{before}{begin}\n\n{wrapped(text.strip())}\n\n{end}{after}"


def wrapped(text: str) -> str:
    """Return Markdown text with its list items broken into lines of at most 120 characters."""
    lines = (
        textwrap.fill(line, LINE_MAX, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        if line.startswith("- ")
        else line
        for line in text.splitlines()
    )
    return "\n".join(lines)
