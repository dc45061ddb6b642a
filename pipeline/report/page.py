"""Render the report as one HTML page. The page contains plotly.js, and its Content-Security-Policy forbids
network access.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weir.pipeline.report.charts import Chart, Table, Text, View
from weir.pipeline.report.html import Html, element, hash_source, json_block, script, style
from weir.pipeline.report.look import RULES, SCRIPT


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page: a heading and its content."""

    name: str
    """Name of the section, unique in the page, for links."""
    title: str
    parts: tuple[Chart | Table | Text, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the main numbers at the top of the page."""

    name: str
    value: Text
    note: Text = ""
    is_name: bool = False
    """True if the value is a name, which needs more room than a number."""


@dataclass(frozen=True, slots=True)
class Page:
    """The content of the report page."""

    title: str
    lead: Text
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    foot: Text


def render(page: Page, plotly_js: str) -> str:
    """Return the page as HTML; `plotly_js` is the source of plotly.js."""
    charts = [part for section in page.sections for part in section.parts if isinstance(part, Chart)]
    figures = {chart.name: [view.figure.as_json() for view in chart.views] for chart in charts}
    library = plotly_js.replace("\r\n", "\n") if charts else ""
    body = element(
        "body",
        element("header", element("h1", page.title), element("p", page.lead), _tiles(page.tiles)),
        _contents(page.sections),
        element("main", *map(_section, page.sections)),
        element("footer", element("p", page.foot)),
        json_block("charts", figures),
        *([script(library), script(SCRIPT)] if charts else []),
    )
    policy = _policy(*([library, SCRIPT] if charts else []))
    return f"<!DOCTYPE html>\n{element('html', _head(page.title, policy), body, lang='en').text}\n"


def _policy(*scripts: str) -> str:
    """Return the page's Content-Security-Policy: no network, and only these scripts. Styles are allowed
    because plotly adds them, images because plotly makes them from charts.
    """
    sources = " ".join(map(hash_source, scripts)) or "'none'"
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _head(title: str, policy: str) -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("title", title),
        style(RULES),
    )


def _tiles(tiles: Sequence[Tile]) -> Html:
    return element("dl", *map(_tile, tiles), class_="tiles") if tiles else Html("")


def _tile(tile: Tile) -> Html:
    value = element("dd", tile.value, *_note(tile.note))
    return element("div", element("dt", tile.name), value, class_="tile name" if tile.is_name else "tile")


def _note(note: Text) -> list[Html]:
    return [element("small", note)] if note else []


def _contents(sections: Sequence[Section]) -> Html:
    links = (element("a", section.title, href=f"#{section.name}") for section in sections)
    return element("nav", *links, aria_label="Sections")


def _section(section: Section) -> Html:
    parts = (
        _chart(part)
        if isinstance(part, Chart)
        else element("div", _table(part), class_="scroll")
        if isinstance(part, Table)
        else part
        if isinstance(part, Html)
        else element("p", part)
        for part in section.parts
    )
    return element("section", element("h2", section.title), *parts, id=section.name)


def _chart(chart: Chart) -> Html:
    views = (_view(chart, view, first=index == 0) for index, view in enumerate(chart.views))
    note = [element("p", chart.note, class_="note")] if chart.note else []
    return element("div", *_selector(chart), *views, *note, class_="chart", data_chart=chart.name)


def _selector(chart: Chart) -> list[Html]:
    if len(chart.views) == 1:
        return []
    options = (element("option", view.name, value=str(index)) for index, view in enumerate(chart.views))
    return [element("label", "Show ", element("select", *options))]


def _view(chart: Chart, view: View, *, first: bool) -> Html:
    name = f"{chart.name}-{chart.views.index(view)}"
    return element(
        "div",
        element("h3", view.title, id=name),
        element("div", class_="plot", role="img", aria_labelledby=name),
        element(
            "details",
            element("summary", "The numbers"),
            element("div", _table(view.table), class_="scroll", tabindex="0"),
        ),
        class_="view",
        hidden=not first,
    )


def _table(table: Table) -> Html:
    head = element("tr", *(element("th", heading, scope="col") for heading in table.headings))
    rows = (
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest))
        for first, *rest in table.rows
    )
    return element("table", element("thead", head), element("tbody", *rows))
