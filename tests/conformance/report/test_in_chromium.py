"""The page in a browser: nothing is refused or overflows, and a link of the matrix filters the findings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.chromium import NEEDS_CHROMIUM, opened, probed
from tests.conformance.report.samples import finding
from weir.conformance.report import Groups, render, verify_page
from weir.conformance.verify import Traffic

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]

SHOWN: Final = '[...document.querySelectorAll(".card")].filter((card) => card.offsetHeight).length'
"""Number of the findings that are shown."""
IS_WIDE: Final = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture
def page() -> str:
    """Two APIs with a finding each, one of them with a long text."""
    traffic, groups = Traffic(), Groups()
    for key, version, api in ((0, 9, "Produce"), (1, 11, "Fetch")):
        traffic.of(key, version).requests += 1
        groups.add(finding(api=api, version=version, path="topics[0]." * 25, found="f" * 500))
    return render(verify_page(groups.report(["a.weircap"], traffic))).decode()


def test_chromium_runs_the_page_under_its_own_policy(page: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")
    document, log = opened(file, "#Produce-v9")
    assert "Content Security Policy" not in log
    assert "CONSOLE" not in log
    assert document.count("<article") == 2
    assert len(re.findall(r"<article[^>]* hidden", document)) == 1, "the script ran: one card is filtered out"


def test_a_link_of_the_matrix_shows_only_its_findings(page: str, tmp_path: Path) -> None:
    assert probed(page, SHOWN, tmp_path, "") == "2"
    assert probed(page, SHOWN, tmp_path, "#Fetch-v11") == "1"
    assert probed(page, SHOWN, tmp_path, "#nonsense") == "2"


def test_page_fits_a_phone(page: str, tmp_path: Path) -> None:
    assert probed(page, IS_WIDE, tmp_path, "", "--window-size=390,844") == "false"
