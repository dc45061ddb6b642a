"""Puts a run's tables into a document, between two marks, in place of those of the run before."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- figures: begin -->"
END: Final = "<!-- figures: end -->"


class DocumentError(Exception):
    """A document has no place for figures."""


def put(file: Path, text: str) -> None:
    """Replace what stands between the marks. Raises DocumentError, OSError."""
    file.write_text(replaced(file.read_text(), text, str(file)))


def check(file: Path) -> None:
    """Find out before minutes of measuring. Raises DocumentError, OSError."""
    replaced(file.read_text(), "", str(file))


def replaced(document: str, text: str, where: str) -> str:
    """`document` with `text` between its marks. Raises DocumentError."""
    before, begin, rest = document.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise DocumentError(f"{where}: no place for figures; mark it with the lines {BEGIN} and {END}")
    return f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}"
