"""Figures go between the marks of a document and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.document import FIGURES, DocumentError, check, markers, put, wrapped
from bench.report import SECTIONS

BEGIN, END = markers(FIGURES)
DOCUMENT = f"# Title\n\nbefore\n\n{BEGIN}\n\nold\n\n{END}\n\nafter\n"


def test_figures_replace_figures_again_and_again(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(DOCUMENT)
    for text in ("first\n", "\nsecond\n\n", "third"):
        put(file, text)
        assert file.read_text() == DOCUMENT.replace("old", text.strip())


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}\n{BEGIN}"])
def test_a_document_without_a_place_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "page.md"
    file.write_text(text)
    with pytest.raises(DocumentError, match="no place for figures"):
        check(file)
    with pytest.raises(DocumentError, match="no place for figures"):
        put(file, "figures")
    assert file.read_text() == text


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_about_performance_has_a_place_for_each_section(section: str) -> None:
    check(Path(__file__).parents[2] / "docs" / "background" / "performance.md", section)


def test_figures_of_one_section_leave_the_others_alone(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    opening, closing = markers("other")
    file.write_text(f"{DOCUMENT}{opening}\n\nkept\n\n{closing}\n")
    put(file, "new")
    put(file, "newer", "other")
    expected = DOCUMENT.replace("old", "new")
    assert file.read_text() == f"{expected}{opening}\n\nnewer\n\n{closing}\n"


def test_list_items_among_the_figures_are_wrapped_and_tables_are_not() -> None:
    item, row = "- " + "word " * 40, "| " + "cell " * 40 + "|"
    lines = wrapped(f"{row}\n\n{item}").splitlines()
    assert lines[:2] == [row, ""]
    assert len(lines) == 4
    assert all(len(line) <= 120 for line in lines[2:])
    assert " ".join(lines[2:]).split() == item.split()
