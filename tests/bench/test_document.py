"""Figures go between the marks of a document and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.document import BEGIN, END, DocumentError, check, put

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


def test_the_page_about_performance_has_a_place() -> None:
    check(Path(__file__).parents[2] / "docs" / "background" / "performance.md")
