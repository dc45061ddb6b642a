"""The report's page from hand-made findings, without Spark."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pytest
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from tests.pipeline.report_pages import HOSTILE, Page
from weir.pipeline.report.figures import Series, bars, heat, points
from weir.pipeline.report.model import (
    DAY_MS,
    HOUR_MS,
    MEASURES,
    Broker,
    Candidate,
    Columns,
    Findings,
    Heat,
    Ingested,
    Overview,
    Recommendation,
    Recommended,
    Replay,
    Replayed,
    Span,
    Spread,
    Talker,
    Talkers,
    Throttled,
    ThrottledEntity,
    Uneven,
)
from weir.pipeline.report.names import Entity, named, visible
from weir.pipeline.report.page import render
from weir.pipeline.report.sections import RUN, missing, page
from weir.pipeline.report.units import BYTES, BYTES_PER_S, SECONDS

MADE: Final = datetime(2026, 11, 27, 12, 30, tzinfo=UTC)
START_MS: Final = 1_795_737_600_000
"""2026-11-27 00:00 UTC (ms)."""
NOTHING: Final = Findings("user-client-id", 30)
ALICE: Final = Entity("alice", "app")
SPAN: Final = Span(START_MS, START_MS + 2 * HOUR_MS)


def findings(*entities: Entity) -> Findings:
    """Return findings with all sections, for these entities."""
    first = entities[0]
    used = {START_MS: 1e6, START_MS + HOUR_MS: 2e6}
    hot = Heat("produced bytes", BYTES, SPAN.columns, tuple((e, used) for e in entities), {START_MS: 7e5}, 3)
    waits = {"producer_byte_rate": 90.0, "request_percentage": 30.0}
    waited = tuple(ThrottledEntity(entity, waits) for entity in entities)
    proposals = tuple(
        Recommended(e, 1e6, 2e6, 1.5e6, in_default=False, flags=("never near",), reason=e.client_id or "")
        for e in entities
    )
    seconds = {"producer_byte_rate": 60.0, "request_percentage": 0.0}
    candidates = tuple(
        Candidate(name, seconds, violations=4, given_up=0)
        for name in ("recorded", entities[0].client_id or "")
    )
    return Findings(
        "user-client-id",
        30,
        overview=Overview(SPAN, 5, 1, 12_345, 3_000_000, 9_000_000, 120.0, first, 6_000_000),
        talkers=(Talkers(MEASURES[0], tuple(Talker(e, 3e6, 1e4) for e in entities), 1e6, 3),),
        heats=(hot,),
        throttled=Throttled(waited, dict.fromkeys(waits, 0.0), 0, (replace(hot, quantity=SECONDS),)),
        spread=Spread((Broker(1, 10, 20, 30, 40, 5.0),), None, 0, (Uneven(first, 2, 1, 1.5, 1e6),)),
        recommendations=(
            Recommendation(
                "producer_byte_rate", proposals, 9, 0, 1, 0, tuple((r.reason, 1) for r in proposals)
            ),
        ),
        replay=Replay(candidates, 0, tuple(Replayed(e, (60.0, 30.0)) for e in entities), (0.0, 0.0), 0),
        ingested=(Ingested("usage", 3, 100, 90, 4, 6, ((2, 4, 6),), tuple((n, 1) for n in HOSTILE)),),
    )


def rendered(found: Findings, plotly_js: str = "var Plotly;") -> str:
    return render(page(found, made=MADE, version="1.2.3"), plotly_js)


def as_figures(parsed: Page) -> list[dict[str, object]]:
    charts = parsed.json["charts"]
    assert isinstance(charts, dict)
    return [view for views in charts.values() for view in views]


def test_the_report_page_without_tables_names_the_jobs_to_run() -> None:
    parsed = Page(rendered(NOTHING))
    for said in RUN.values():
        assert said in parsed.text
    assert parsed.json == {"charts": {}}
    assert parsed.scripts == []
    assert missing(NOTHING) == ["ingest", "rollup", "recommend", "replay"]


@pytest.mark.parametrize(
    ("left", "section", "there"),
    [
        ({"ingested": ()}, "How good the records are", "rollup recommend replay"),
        ({"recommendations": ()}, "Recommended quotas", "ingest rollup replay"),
        ({"replay": None}, "What other quotas", "ingest rollup recommend"),
        ({"overview": None}, "Use by entity", "ingest recommend replay"),
    ],
    ids=["ingest", "recommend", "replay", "rollup"],
)
def test_the_report_page_names_missing_tables_and_shows_all_others(
    left: dict[str, None], section: str, there: str
) -> None:
    found = replace(findings(ALICE), **left)  # type: ignore[arg-type]  # one field
    parsed = Page(rendered(found))
    assert section in parsed.text
    for job, said in RUN.items():
        assert (said in parsed.text) == (job not in there.split())


def test_the_report_page_begins_with_the_main_numbers() -> None:
    text = Page(rendered(findings(ALICE))).text
    assert (
        "2026-11-27 00:00 to 2026-11-27 02:00 UTC: 5 pairs of user and client-id, 1 broker, 10 usage records."
        in text
    )
    assert "3 MB417 B/s on average" in text  # 3 MB in two hours
    assert "12,345" in text
    assert "alice / app50% of all bytes" in text
    assert "Throttle time2 min" in text
    assert "20%1 of 5" in text
    assert "Made by Weir 1.2.3 at 2026-11-27 12:30:00 UTC" in text


def test_chart_titles_of_the_report_state_the_main_finding() -> None:
    text = Page(rendered(findings(ALICE))).text
    assert "Produced bytes: most in the hour of 2026-11-27 01:00, 2 MB together" in text
    assert "Most produced bytes: alice / app, 3 MB (75% of all)" in text
    assert "Throttled most: alice / app, told to wait 2 min (100% of all)" in text
    assert "Everything went through broker 1" in text
    assert (
        "producer_byte_rate: 0 raised, 1 lowered, 0 new, of 9 proposed; shown are the 1 that used most"
        in text
    )


def test_hostile_names_are_plain_text_everywhere_on_the_report_page() -> None:
    entities = [Entity(name, other) for name, other in zip(HOSTILE, reversed(HOSTILE), strict=True)]
    parsed = Page(rendered(findings(*entities)))
    harmless = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "h1",
        "p",
        "dl",
        "div",
        "dt",
        "dd",
    }
    harmless |= {
        "small",
        "nav",
        "a",
        "main",
        "section",
        "h2",
        "h3",
        "details",
        "summary",
        "table",
        "thead",
        "tr",
    }
    harmless |= {"th", "td", "tbody", "bdi", "i", "footer", "script", "label", "select", "option"}
    assert parsed.names() <= harmless
    assert len(parsed.scripts) == 2
    assert not parsed.comments
    links = [attributes["href"] for name, attributes in parsed.elements if name == "a"]
    assert all(re.fullmatch("#[a-z]+", link or "") for link in links)
    assert not any(key.startswith("on") for _, attributes in parsed.elements for key in attributes)
    for name in HOSTILE:
        assert visible(name) in parsed.text


def test_hostile_names_are_no_markup_in_report_charts() -> None:
    entities = [Entity(name, name) for name in HOSTILE]
    views = as_figures(Page(rendered(findings(*entities))))
    texts = {text for view in views for text in _strings(view)}
    assert any("script&gt;" in text for text in texts)
    for text in texts:
        assert re.sub(r"</?i>|<br>|<extra></extra>", "", text).count("<") == 0, text
        assert not re.search("[\u202a-\u202e\x00-\x1f]", text)


def test_report_templates_contain_no_client_names() -> None:
    views = as_figures(Page(rendered(findings(Entity("%{x}", "%{y}")))))
    traces = [trace for view in views for trace in view["data"]]  # type: ignore[attr-defined]  # JSON
    templates = {trace["hovertemplate"] for trace in traces if "hovertemplate" in trace}
    assert templates == {
        "%{customdata[0]}<br>%{customdata[1]}<br>%{text}<extra></extra>",
        "%{customdata[0]}<br>%{text}<extra></extra>",
        "%{customdata[0]}<br>%{text}",
    }


def test_the_report_page_loads_nothing_and_runs_only_its_scripts() -> None:
    library = get_plotlyjs()
    parsed = Page(rendered(findings(ALICE), library))
    loading = {"src", "srcset", "data", "poster", "background", "action", "formaction", "ping", "manifest"}
    assert not any(loading & set(attributes) for _, attributes in parsed.elements)
    assert parsed.names().isdisjoint({"link", "base", "iframe", "object", "embed", "img", "form"})
    assert not re.search(r"url\(|@import|http", "".join(parsed.styles))
    assert parsed.scripts[0] == library
    assert "http" not in parsed.scripts[1]
    hashes = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in parsed.scripts]
    sources = " ".join(f"'sha256-{each}'" for each in hashes)
    assert parsed.policy() == (
        f"default-src 'none'; script-src {sources}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def test_plotly_accepts_every_report_chart() -> None:
    views = as_figures(Page(rendered(findings(ALICE, Entity("", "")))))
    assert len(views) == 9  # use, talkers, two of brokers, two of throttles, recommended, two of the replay
    for view in views:
        Figure({"data": view["data"], "layout": view["layout"]})  # raises ValueError


def test_every_report_chart_has_a_table_of_its_numbers() -> None:
    parsed = Page(rendered(findings(ALICE)))
    views = [attributes for _, attributes in parsed.elements if attributes.get("class") == "view"]
    tables = [name for name, _ in parsed.elements if name == "details"]
    assert len(views) == len(tables) == len(as_figures(parsed))


def test_report_bars_use_the_unit_of_the_longest() -> None:
    figure = bars([named("a"), named("b")], [Series("s", [1_500_000.0, 2_000.0])], BYTES, stacked=False)
    assert figure.data[0]["x"] == [1.5, 0.002]
    assert figure.data[0]["text"] == ["1.5 MB", "2 kB"]
    assert figure.layout["xaxis"] == {"title": {"text": "MB"}, "rangemode": "tozero", "automargin": True}


def test_report_heat_maps_are_logarithmic_with_gaps_for_zero() -> None:
    columns = Columns(START_MS, HOUR_MS, 3)
    figure = heat([named("a")], [{START_MS: 1000.0, START_MS + 2 * HOUR_MS: 0.0}], columns, BYTES)
    (trace,) = figure.data
    assert trace["z"] == [[3.0, None, None]]
    assert trace["text"] == [["1 kB", "", ""]]
    assert trace["x"] == ["2026-11-27 00:30", "2026-11-27 01:30", "2026-11-27 02:30"]  # the cells' middles
    assert (trace["zmin"], trace["zmax"]) == (3, 4)
    assert figure.columns[1] == "2026-11-27 01:00 UTC"


def test_zero_has_no_mark_on_a_logarithmic_report_axis() -> None:
    series = [Series("used", [0.0, 100.0]), Series("current", [None, 1000.0])]
    figure = points([named("a"), named("b")], series, BYTES_PER_S)
    lines, used, current = figure.data
    assert (used["x"], current["x"]) == ([None, 100.0], [None, 1000.0])
    assert (lines["x"], lines["y"]) == ([100.0, 1000.0, None], [1, 1, None])


@pytest.mark.parametrize(
    ("hours", "step_ms", "count", "word"),
    [
        (1, HOUR_MS, 1, "hour"),
        (240, HOUR_MS, 240, "hour"),
        (241, DAY_MS, 11, "day"),
        (24 * 400, DAY_MS, 400, "day"),
        (24 * 401, 2 * DAY_MS, 201, "2 days"),
        (24 * 3650, 10 * DAY_MS, 365, "10 days"),
    ],
)
def test_report_columns_of_a_long_time_are_longer(hours: int, step_ms: int, count: int, word: str) -> None:
    columns = Span(START_MS, START_MS + hours * HOUR_MS).columns
    assert (columns.from_ms, columns.step_ms, columns.count, columns.word) == (START_MS, step_ms, count, word)


def test_the_report_page_explains_columns_longer_than_an_hour() -> None:
    found = findings(ALICE)
    long = replace(found.heats[0], columns=Span(START_MS, START_MS + 20 * DAY_MS).columns)
    text = Page(rendered(replace(found, heats=(long,)))).text
    assert "A column is a day: the time is too long for hours." in text


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _strings(part)]
