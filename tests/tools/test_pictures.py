"""Pictures of the documentation show the figures of its pages."""

from __future__ import annotations

from pathlib import Path

from tools.pictures.cost import draw, parse

DOCS = Path(__file__).parents[2] / "docs"


def test_the_picture_of_costs_shows_the_table_of_the_performance_page() -> None:
    page = (DOCS / "background" / "performance.md").read_text("utf-8")
    assert (DOCS / "images" / "cost.svg").read_text("utf-8") == draw(parse(page))
