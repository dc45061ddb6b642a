"""The report in a browser: charts are drawn, nothing is refused or overflows, and the script works."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chromium import NEEDS_CHROMIUM, opened, probed
from tests.pipeline.report_findings import ALICE, findings, large
from weir.pipeline.report.model import Findings
from weir.pipeline.report.names import Entity
from weir.pipeline.report.page import render

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]

DRAWN = """[...document.querySelectorAll(".overview .plot, .overview td .spark")].map((chart) => {
  const area = chart.querySelector(".a0, path").getBoundingClientRect();
  const box = (chart.querySelector(".box") ?? chart).getBoundingClientRect();
  return Math.round(100 * area.width / box.width) + "x" + (area.height > 10);
})"""
"""Width (percent of the chart) of each chart's area, and whether the area is higher than 10 px."""
SHOWN = """[...document.querySelectorAll("#clients tbody tr")].filter((row) => row.offsetHeight)
  .map((row) => row.cells[0].textContent)"""


def rendered(found: Findings) -> str:
    return render(found, made=datetime(2026, 12, 12, tzinfo=UTC), version="1")


@pytest.fixture(scope="module")
def page() -> str:
    return rendered(large(clients=40, top=5, brokers=3))


def test_chromium_opens_the_report_under_its_policy_without_a_message(page: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page, "utf-8")
    document, log = opened(file, "#client-2")
    assert "CONSOLE" not in log
    assert document.count("<button>") == 8, "the script ran, and made headings sortable"


def test_chromium_draws_every_chart_of_the_report(page: str, tmp_path: Path) -> None:
    drawn = probed(page, DRAWN, tmp_path).split(",")
    assert len(drawn) == 6 + 40
    assert set(drawn) == {"100xtrue"}


def test_the_address_of_a_client_shows_only_its_page(page: str, tmp_path: Path) -> None:
    shown = """[...document.querySelectorAll(".overview, .client")].filter((each) => each.offsetHeight)
      .map((each) => each.id)"""
    assert probed(page, shown, tmp_path) == "overview"
    assert probed(page, shown, tmp_path, "#client-3") == "client-3"
    assert probed(page, shown, tmp_path, "#overview") == "overview"


def test_the_table_of_clients_is_searched_and_sorted(tmp_path: Path) -> None:
    entities = [Entity("u", name) for name in ("b", "c", "a")]
    page = rendered(findings(*entities))
    sort = 'document.querySelector("#clients th button").click()'
    assert probed(page, f"({sort}, {SHOWN})", tmp_path) == "u / c,u / b,u / a"
    assert probed(page, f"({sort}, {sort}, {SHOWN})", tmp_path) == "u / a,u / b,u / c"
    search = 'search.value = " U / C ", search.dispatchEvent(new Event("input"))'
    probe = f'({search}, {SHOWN} + "; " + document.getElementById("found").textContent)'
    assert probed(page, probe, tmp_path) == "u / c; 1 of 3"


def test_a_chart_tells_its_values_under_the_pointer(tmp_path: Path) -> None:
    probe = """(() => {
      const plot = document.querySelector(".plot"), box = plot.querySelector(".box").getBoundingClientRect();
      plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width * 0.75 }));
      return plot.querySelector(".tip").textContent;
    })()"""
    told = probed(rendered(findings(ALICE)), probe, tmp_path)
    assert told == "2026-11-27 01:00: load 2 kB/s"


def test_the_report_fits_a_phone(page: str, tmp_path: Path) -> None:
    """A frame as wide as a phone, because a window may have a least width."""
    (tmp_path / "phone.html").write_text(page.replace("http-equiv", "data-not"), "utf-8")
    wide = "document.querySelector('iframe').contentDocument.documentElement"
    frame = "<body><iframe src='phone.html' width='390' height='844'></iframe></body>"
    options = ("--allow-file-access-from-files",)
    probe = f"{wide}.clientWidth + ' ' + {wide}.scrollWidth"
    client, scrolled = map(int, probed(frame, probe, tmp_path, "", *options).split())
    assert 0 < client <= 390
    assert scrolled <= client
