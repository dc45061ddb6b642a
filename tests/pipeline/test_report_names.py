"""Names in a report: hostile names are shown as plain text."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.report_pages import HOSTILE, Page
from weir.pipeline.report import html as report_html
from weir.pipeline.report import names as report_names
from weir.pipeline.report import units as report_units
from weir.pipeline.report.html import element, json_block, script
from weir.pipeline.report.names import LONG, Entity, label, ours, plot_text, visible

NAMES = st.one_of(st.text(), st.sampled_from(HOSTILE))


@pytest.mark.parametrize(
    "module", [report_html, report_names, report_units], ids=lambda module: module.__name__
)
def test_docstring_examples_of_the_report_run(module: object) -> None:
    results = doctest.testmod(module, raise_on_error=True)  # type: ignore[arg-type]  # the parameter is a module
    assert results.attempted > 0


@given(NAMES, NAMES)
def test_any_name_is_plain_text_in_a_report_page(user: str, client_id: str) -> None:
    page = Page(element("p", label(Entity(user, client_id)).page()).text)
    assert page.names() <= {"p", "bdi", "i"}
    assert not page.comments
    if user and client_id and len(user) + len(client_id) < 300:
        assert page.text == f"{visible(user)} / {visible(client_id)}"


@given(NAMES, NAMES, st.integers(10, 60))
def test_any_name_is_plain_text_in_a_report_chart(user: str, client_id: str, room: int) -> None:
    entity = label(Entity(user, client_id))
    for text in (entity.plot(room), entity.hover()):
        assert Page(f"<p>{text.replace('<br>', '')}</p>").names() <= {"p", "i"}
    assert len(Page(entity.plot(room)).text) <= max(room, len("(empty) / (empty)"))


@pytest.mark.parametrize(
    ("entity", "said"),
    [
        (Entity("alice", "app"), "alice<i> / </i>app"),
        (Entity("alice", ""), "alice<i> / </i><i>(empty)</i>"),
        (Entity("", "(empty)"), "<i>(empty)</i><i> / </i>(empty)"),
        (Entity("alice", None), "<i>user </i>alice"),
        (Entity(None, "app"), "<i>client-id </i>app"),
        (Entity(None, ""), "<i>client-id </i><i>(empty)</i>"),
        (Entity(None, None, "etl-"), "<i>client-id </i>etl-<i>*</i>"),
        (Entity("alice", None, "etl-"), "alice<i> / </i>etl-<i>*</i>"),
        (Entity(None, None), "<i>everyone</i>"),
        (Entity("<b>", "&amp;"), "&lt;b&gt;<i> / </i>&amp;amp;"),
    ],
)
def test_report_labels_name_user_client_id_and_prefix(entity: Entity, said: str) -> None:
    assert label(entity).plot(40) == said


def test_client_names_cannot_imitate_weirs_report_labels() -> None:
    assert label(Entity(None, "all others (3)")).plot(60).endswith("</i>all others (3)")
    assert ours("all others (3)").plot(60) == "<i>all others (3)</i>"


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


def test_long_names_are_shortened_in_report_labels_and_whole_on_the_page() -> None:
    entity = label(Entity("alice", "connector-" + "x" * 300 + "-0007"))
    assert entity.plot(38) == "alice<i> / </i>connector-xxxxxxxx…xxxxxx-0007"
    assert entity.page().text.endswith("x" * 300 + "-0007</bdi>")
    longest = Page(label(Entity("u" * 32_767, "c" * 32_767)).page().text).text
    assert len(longest) <= LONG


def test_two_long_names_share_a_report_labels_length() -> None:
    text = Page(label(Entity("n" * 100, "n" * 100)).plot(33)).text
    assert text == "nnnnnnnnn…nnnnn / nnnnnnnnn…nnnnn"  # 15 and 15 of 33


def test_no_value_ends_the_reports_json_block() -> None:
    value = {"names": list(HOSTILE), "a": "\u2028"}
    page = Page(json_block("data", value).text)
    assert page.json == {"data": value}
    assert page.names() == {"script"}


def test_the_report_refuses_a_script_that_contains_its_end_tag() -> None:
    with pytest.raises(ValueError, match="would end its HTML element"):
        script("let a = '</SCRIPT>'")


def test_attributes_of_the_report_page_are_escaped() -> None:
    page = Page(element("p", "x", title='"><script>').text)
    assert page.elements == [("p", {"title": '"><script>'})]


def test_report_text_for_plotly_has_no_markup() -> None:
    assert plot_text("<b>\u202e&") == "&lt;b&gt;\\u202e&amp;"
