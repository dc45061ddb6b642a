"""Names in a report: hostile names are shown as plain text."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.report_pages import HOSTILE, Page
from weir.pipeline.report import names as report_names
from weir.pipeline.report import plot as report_plot
from weir.pipeline.report import units as report_units
from weir.pipeline.report.names import ReportEntity, label, visible

NAMES = st.one_of(st.text(), st.sampled_from(HOSTILE))


@pytest.mark.parametrize(
    "module", [report_names, report_plot, report_units], ids=lambda module: module.__name__
)
def test_docstring_examples_of_the_report_run(module: object) -> None:
    results = doctest.testmod(module, raise_on_error=True)  # type: ignore[arg-type]  # the parameter is a module
    assert results.attempted > 0


@given(NAMES, NAMES)
def test_any_name_is_plain_text_in_a_report_page(user: str, client_id: str) -> None:
    page = Page(f"<p>{label(ReportEntity(user, client_id))}</p>")
    assert page.names() <= {"p", "bdi", "i"}
    assert not page.comments
    if user and client_id and len(user) + len(client_id) < 300:
        assert page.text == f"{visible(user)} / {visible(client_id)}"


@pytest.mark.parametrize(
    ("entity", "said"),
    [
        (ReportEntity("alice", "app"), "<bdi>alice</bdi><i> / </i><bdi>app</bdi>"),
        (ReportEntity("alice", ""), "<bdi>alice</bdi><i> / </i><i>(empty)</i>"),
        (ReportEntity("", "(empty)"), "<i>(empty)</i><i> / </i><bdi>(empty)</bdi>"),
        (ReportEntity("alice", None), "<i>user </i><bdi>alice</bdi>"),
        (ReportEntity(None, "app"), "<i>client-id </i><bdi>app</bdi>"),
        (ReportEntity(None, ""), "<i>client-id </i><i>(empty)</i>"),
        (ReportEntity(None, None, "etl-"), "<i>client-id </i><bdi>etl-</bdi><i>*</i>"),
        (ReportEntity("alice", None, "etl-"), "<bdi>alice</bdi><i> / </i><bdi>etl-</bdi><i>*</i>"),
        (ReportEntity(None, None), "<i>everyone</i>"),
        (ReportEntity("<b>", "&amp;"), "<bdi>&lt;b&gt;</bdi><i> / </i><bdi>&amp;amp;</bdi>"),
    ],
)
def test_report_labels_name_user_client_id_and_prefix(entity: ReportEntity, said: str) -> None:
    assert label(entity) == said


def test_client_names_cannot_imitate_weirs_report_labels() -> None:
    assert label(ReportEntity(None, "everyone")).endswith("</i><bdi>everyone</bdi>")
    assert label(ReportEntity(None, None)) == "<i>everyone</i>"


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("\u202eevil\u202c", r"\u202eevil\u202c"),
        ("a\u200bb", r"a\u200bb"),
        ("a\x00\n", r"a\x00\n"),
        ("a\xa0b", r"a\xa0b"),
        ("\ud800", r"\ud800"),
        ("Müller عميل 客户", "Müller عميل 客户"),
    ],
)
def test_invisible_characters_in_report_names_are_escaped(name: str, seen: str) -> None:
    assert visible(name) == seen
