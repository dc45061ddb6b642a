"""docs/tour.md: its template, filled with the findings of a run, and its pictures."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Final

import pytest

from tests.tools.compiled_only import ROOT
from tools.tour.dashboard import Board, Panel
from tools.tour.scene import CLIENTS
from tools.tour.text import LINES, Facts, render
from weir.demo.measure import Reading, Span

BYTES_MAX: Final = 200_000
BOARD: Final = Board([Panel("Ready", 1, "1"), Panel("Events", 0, "")], ["WeirNotReady"], 28)


def facts(board: Board | None = BOARD, lines: tuple[str, ...] = LINES) -> Facts:
    """Return findings of a run of 10 s, in which each client transferred 5 MB."""
    return Facts(
        kafka="4.2.0",
        seconds=10.0,
        spans=[Span(Reading(0.0), Reading(10.0, 5_000_000, 3, 0, 250)) for _ in CLIENTS],
        status=SimpleNamespace(version="1.2.3", compiled=False, python="3.11.7"),
        throttled={"entities": [{"sentence": "client-id=orders is at 101 %"}]},
        lines=[f"2026 [info     ] {line}   rate=1" for line in lines],
        previewed="client-id=clicks would have been throttled for 5 s\nlimit",
        took_s=0.25,
        load="1.5",
        board=board,
    )


def test_the_tour_has_the_rates_sentences_log_lines_and_panels_of_the_run() -> None:
    page = render(facts())
    assert "| `orders` | producer | 2.00 | 1.00 | 0.50 | 250 ms |" in page
    assert "\nclient-id=orders is at 101 %\n" in page
    assert "2026 [info ] throttling begins rate=1\n" in page
    assert "\nclient-id=clicks would have been throttled for 5 s\n" in page
    assert "| Ready | 1 | `1` |\n| Events | 0 | \u2013 |" in page
    assert "1 of the 28 conditions" in page


def test_the_tour_without_prometheus_says_what_it_leaves_out() -> None:
    page = render(facts(board=None))
    assert "no `prometheus` in the PATH" in page
    assert "## The dashboard" not in page


def test_the_tour_is_not_written_if_weir_has_not_logged_an_event() -> None:
    with pytest.raises(ValueError, match="has not logged 'quota altered'"):
        render(facts(lines=tuple(line for line in LINES if line != "quota altered")))


def test_the_quota_file_of_the_tour_has_the_quotas_of_its_clients() -> None:
    page = render(facts())
    named = re.findall(r'client_id = "(\w+)"', page)
    assert named == [each.client_id for each in CLIENTS if not each.by_default]


def test_pictures_of_the_committed_tour_are_small() -> None:
    names = re.findall(r"\]\(images/([^)]+)\)", (ROOT / "docs/tour.md").read_text("utf-8"))
    assert len(names) == 7
    assert [name for name in names if (ROOT / "docs/images" / name).stat().st_size >= BYTES_MAX] == []
