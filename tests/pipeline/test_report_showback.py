"""Show-back without Spark: the file of prices, CSV, and the page."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl
import pytest

from tests.pipeline.report_findings import ALICE, findings
from weir.pipeline.outcome import PipelineError
from weir.pipeline.report.model import Bill, GroupBill
from weir.pipeline.report.page import render
from weir.pipeline.report.prices import Prices, parse_prices
from weir.pipeline.report.showback import csv as as_csv
from weir.pipeline.report.showback import listing


def test_prices_of_a_file_are_read() -> None:
    assert parse_prices('currency = "EUR"\nin_per_gb = 1\nout_per_gb = 0.5') == Prices("EUR", 1.0, 0.5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "required field `currency`"),
        ("currency = 'EUR'\nin_per_mb = 1", "unknown field `in_per_mb`"),
        ("currency = 'EUR'\nin_per_gb = -1", "`$.in_per_gb`"),
        ("currency = 'EUR'\nin_per_gb = inf", "`$.in_per_gb`"),
        ("currency = 'EUR'\nin_per_gb = nan", "`$.in_per_gb`"),
        ("currency", "Expected '='"),
        ("a = " + "9" * 5000, "digits"),
    ],
    ids=["no currency", "unknown", "negative", "infinite", "no number", "no TOML", "long number"],
)
def test_wrong_prices_are_refused(text: str, problem: str) -> None:
    with pytest.raises(PipelineError) as refused:
        parse_prices(text)
    assert problem in str(refused.value)


def test_names_in_csv_are_no_formulas_of_a_spreadsheet() -> None:
    names = ["=1+1", "-", "@x", "+1", "app", "a,b", 'a"b', "", None]
    found = list(csv.reader(io.StringIO(as_csv(pl.DataFrame({"user": names, "amount": [0.1] * 9})))))
    assert found[0] == ["user", "amount"]
    assert [row[0] for row in found[1:]] == ["'=1+1", "'-", "'@x", "'+1", "app", "a,b", 'a"b', "", ""]
    assert found[1][1] == "0.100000"


def test_the_terminal_shows_the_ten_dearest_and_the_amount_of_all() -> None:
    used = pl.DataFrame({"user": [f"u{n}" for n in range(12)], "amount": [12.0 - n for n in range(12)]})
    shown = listing(used, Prices("EUR"))
    assert shown.title == "the 10 dearest of 12 entities; all: 78.00 EUR"
    assert shown.rows[0] == ("u0", 12.0)
    assert len(shown.rows) == 10


def test_the_report_page_shows_the_price_of_each_client_and_of_each_group_and_of_all() -> None:
    groups = [
        GroupBill("<pay>", 5 * 10**9, 0, 1000, 7200.0, 1.5, 12.3),
        GroupBill("", 0, 0, 0, 0.0, 0.0, 0.0),
    ]
    bill = Bill("EUR", 1234.5, {ALICE: (7200.0, 12.3)}, groups)
    page = render(replace(findings(ALICE), bill=bill), made=datetime(2026, 11, 27, tzinfo=UTC), version="1")
    assert '<td data-v="7200.0">2 h</td><td data-v="12.3">12.30</td>' in page
    assert "All clients: 1,234.50 " in page
    assert "<bdi>&lt;pay&gt;</bdi></th><td>5 GB</td><td>0 B</td><td>1,000</td><td>2 h</td>" in page
    assert "<td>1.5 s</td><td>12.30</td></tr>" in page
    assert "<i>(none)</i></th>" in page
