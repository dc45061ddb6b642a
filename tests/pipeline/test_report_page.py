"""The report's page from findings that are made by hand, without Spark."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pytest

from tests.pipeline.report_findings import ALICE, HOUR_S, NOTHING, brokers, client, findings, hours, large
from tests.pipeline.report_pages import HOSTILE, Page
from weir.pipeline.report.actions import ACTIONS, actions
from weir.pipeline.report.data import columns_of
from weir.pipeline.report.model import (
    HOUR_MS,
    Bounds,
    CandidateResult,
    EntityCounts,
    Findings,
    Ingested,
    Proposal,
    ReportOptions,
    Use,
)
from weir.pipeline.report.names import ReportEntity, visible
from weir.pipeline.report.page import render
from weir.pipeline.report.view import RUN, figures, missing

MADE: Final = datetime(2026, 11, 28, 12, 30, tzinfo=UTC)
WEEK: Final = 7 * 24


def rendered(found: Findings) -> str:
    return render(found, made=MADE, version="1.2.3")


def text_of(found: Findings) -> str:
    """Return the page's text, with one space between words and between cells."""
    apart = re.sub(r"</(p|t[dh]|d[dt]|li|div|span)>", r" </\1>", rendered(found))
    return " ".join(Page(apart).text.split())


def with_use(found: Findings, **values: object) -> Findings:
    assert found.use is not None
    return replace(found, use=replace(found.use, **values))  # type: ignore[arg-type]  # checked by the tests


def with_capacity(found: Findings) -> Findings:
    """Return the findings with a capacity of 100 bytes/s of each broker."""
    return replace(found, wanted=ReportOptions(capacity={"producer_byte_rate": 100.0}))


def test_the_report_page_without_tables_names_the_jobs_to_run() -> None:
    text = text_of(NOTHING)
    assert all(said in text for job, said in RUN.items() if job != "rollup")
    assert list(missing(NOTHING)) == ["ingest", "rollup", "recommend", "replay"]


@pytest.mark.parametrize(
    ("left", "job"),
    [
        ({"ingested": ()}, "ingest"),
        ({"proposals": ()}, "recommend"),
        ({"candidates": ()}, "replay"),
        ({"use": None}, "rollup"),
    ],
    ids=["ingest", "recommend", "replay", "rollup"],
)
def test_the_report_page_names_a_missing_table_and_shows_all_others(left: dict[str, None], job: str) -> None:
    text = text_of(replace(findings(ALICE), **left))  # type: ignore[arg-type]  # one field
    assert [said for said in RUN.values() if said in text] == [RUN[job]]


def test_the_report_page_begins_with_three_sentences() -> None:
    text = text_of(findings(ALICE))
    assert (
        "4 clients moved 10.8 MB in 2 h of records; alice / app moved 100%. "
        "All of it went through broker 1, with at most 2 kB/s of produce. "
        "Quotas told 1 of 4 clients to wait, 2 min in all; the recommendation changes 1 limit."
    ) in text
    assert "Throttled 1 told to wait 2 min" in text


def test_report_tells_the_time_that_a_replay_covers_and_the_week_of_its_figures() -> None:
    """A replay of one day stood below 14 days of use, and two averages of different times at the top. The
    clients that were told to wait in one week stood beside the bytes of two.
    """
    quantities = (1e6,) * 14 * 24
    found = with_use(findings(ALICE), columns=hours(14 * 24), bytes_=quantities, brokers=brokers(quantities))
    found = with_use(found, clients=(client(ALICE, quantities),))
    day = CandidateResult("a.toml", {}, 0, 0, 1_795_176_000_000, 1_795_176_000_000 + 86_400_000)
    text = text_of(replace(found, candidates=[day]))
    assert "from Fri 20 Nov 2026 12:00 to Sat 21 Nov 2026 12:00 (UTC)." in text
    assert "average of the latest 7 days" in text
    assert "In the latest 7 days, quotas told" in text
    assert "on average" not in text


def test_report_averages_are_over_the_recorded_time() -> None:
    """In half a minute 1 MB moved: 33.3 kB/s. An hour has 120 times as many seconds."""
    columns = hours(1, seconds=30.0)
    found = with_use(findings(ALICE), columns=columns, bytes_=(1e6,), brokers=brokers((33.3e3,)))
    one = client(ALICE, (1e6,))
    found = with_use(found, clients=(one,), count=1)
    text = text_of(found)
    assert "1 client moved 1 MB in 30 s of records; alice / app moved 100%." in text
    assert "Traffic 33.3 kB/s average of the recorded time" in text


def test_the_recorded_time_begins_with_the_first_record_and_ends_with_the_last() -> None:
    """Half a minute around the second hour's end; then a recording of five hours without records in one."""
    hour = HOUR_MS
    short = columns_of([hour, 2 * hour], hour, (2 * hour - 20_000, 2 * hour + 10_000))
    assert (short.from_ms, short.recorded_s) == (hour, (20.0, 10.0))
    gap = columns_of([4 * hour, hour, 2 * hour, 5 * hour], hour, (hour + 60_000, 6 * hour - 30_000))
    assert gap.recorded_s == (3540.0, 3600.0, 0.0, 3600.0, 3570.0)


def test_hours_without_their_records_count_as_recorded_whole() -> None:
    """Retention may have removed the records."""
    assert columns_of([0, HOUR_MS], HOUR_MS, None).recorded_s == (3600.0, 3600.0)


def test_report_figures_show_the_change_from_the_week_before() -> None:
    bytes_ = (HOUR_S * 100,) * WEEK + (HOUR_S * 150,) * WEEK
    found = with_use(
        findings(ALICE),
        columns=hours(2 * WEEK),
        bytes_=bytes_,
        brokers={},
        clients=(client(ALICE, bytes_),),
        weeks=(EntityCounts(6, 1, 5.0), EntityCounts(5, 2, 1.0)),
    )
    assert found.use is not None
    shown = figures(found.use, "client")
    assert [(each.value, each.change, each.tone) for each in shown] == [
        ("150 B/s", "+50 % on the week before", ""),
        ("150 B/s", "+50 % on the week before", ""),
        ("6", "+20 % on the week before", ""),
        ("1", "-50 % on the week before", "good"),
    ]


def test_report_actions_begin_with_full_brokers_and_clients_that_were_held_back() -> None:
    def proposed(name: str, current: float | None, proposed: float, *flags: str) -> Proposal:
        entity = ReportEntity("u", name)
        return Proposal(entity, "producer_byte_rate", 1000.0, current, proposed, flags=flags, reason="why")

    uneven = client(ReportEntity("u", "uneven"), (1e6, 0.0), skew=2.5, brokers=4)
    found = replace(
        with_capacity(with_use(findings(ALICE), brokers=brokers((90.0,)), clients=(uneven,))),
        proposals=(
            proposed("lower", 5e3, 2e3, "never near"),
            proposed("new", None, 2e3),
            proposed("raise", 1e3, 2e3),
            proposed("held", 1e3, 2e3, "held back"),
            proposed("same", 2e3, 2e3),
            replace(proposed("default", 3e3, 2e3), in_default=True),
        ),
    )
    assert [(each.verb, str(each.text.striptags())) for each in actions(found)] == [
        ("Relieve", "broker 1: 90 % of its capacity"),
        ("Try", "u / held: producer_byte_rate 1 kB/s → 2 kB/s, in shadow mode or in steps"),
        ("Raise", "u / raise: producer_byte_rate 1 kB/s → 2 kB/s"),
        ("Limit", "u / new: producer_byte_rate 2 kB/s"),
        ("Lower", "u / lower: producer_byte_rate 5 kB/s → 2 kB/s"),
        ("Spread", "u / uneven"),
    ]
    assert actions(found)[1].why == "held back; why"
    assert actions(found)[-1].why.startswith("broker 1 carries 2.5 times the mean of its 4 brokers: 375 kB")


def test_report_actions_are_at_most_ten_of_several_kinds() -> None:
    found = actions(large(clients=40, top=5, days=2))
    assert len(found) == ACTIONS
    assert len({each.verb for each in found}) >= 3


def test_the_report_page_has_a_table_and_a_page_of_each_top_client() -> None:
    entities = [ReportEntity("u", f"c{index}") for index in range(3)]
    page = Page(rendered(replace(findings(*entities), wanted=ReportOptions(top=2))))
    pages = [attributes["id"] for name, attributes in page.elements if name == "article"]
    links = [a["href"] for name, a in page.elements if name == "a" and a["href"] != "#overview"]
    assert links == [f"#{name}" for name in pages] == ["#client-1", "#client-2"]
    sparks = [name for name, attributes in page.elements if attributes.get("class") == "spark"]
    assert len(sparks) == 3
    assert "3 more clients used less." in page.text


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (Bounds(60, 60), "1 min"),
        (Bounds(6, 60), "6 s to 1 min"),
        (Bounds(6, None), "at least 6 s"),
        (Bounds(0, None), "unknown"),
    ],
    ids=str,
)
def test_uncertain_replay_results_are_bounds(bounds: Bounds, said: str) -> None:
    candidates = (CandidateResult("next.toml", {"producer_byte_rate": bounds}, 2, 0),)
    assert f"next.toml {said} 2 0" in text_of(replace(findings(ALICE), candidates=candidates))


def hostile() -> Findings:
    """Return findings with hostile texts in every place where others choose the text."""
    entities = [ReportEntity(name, other) for name, other in zip(HOSTILE, reversed(HOSTILE), strict=True)]
    found = findings(*entities)
    return replace(
        found,
        wanted=ReportOptions(HOSTILE[0]),
        proposals=tuple(replace(p, reason=p.entity.user or "", flags=(HOSTILE[1],)) for p in found.proposals),
        candidates=tuple(
            CandidateResult(name, {"producer_byte_rate": Bounds(1, 1)}, 0, 0) for name in HOSTILE
        ),
        ingested=(Ingested("usage", 90, 6, tuple((name, 1) for name in HOSTILE)),),
    )


def test_hostile_names_are_plain_text_everywhere_on_the_report_page() -> None:
    page = Page(rendered(hostile()))
    harmless = Page(rendered(findings(ALICE, ReportEntity("", ""))))
    assert page.names() == harmless.names()
    assert len(page.scripts) == 1
    assert not page.comments
    links = [attributes["href"] for name, attributes in page.elements if name == "a"]
    assert all(re.fullmatch(r"#[a-z]+(-\d+)?", link or "") for link in links)
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    for name in HOSTILE:
        assert visible(name) in page.text
    assert not re.search("[\u202a-\u202e\x00-\x09]", page.text)


def test_the_report_page_loads_nothing_and_runs_only_its_script() -> None:
    page = Page(rendered(findings(ALICE)))
    loading = {"src", "srcset", "data", "poster", "background", "action", "formaction", "ping", "style"}
    assert not any(loading & set(attributes) for _, attributes in page.elements)
    assert page.names().isdisjoint(
        {"link", "base", "iframe", "object", "embed", "img", "image", "form", "use"}
    )
    assert not re.search(r"url\(|@import|http", "".join(page.styles + page.scripts))
    (style,), (script,) = (
        [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in sources]
        for sources in (page.styles, page.scripts)
    )
    assert page.policy() == (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_the_report_of_many_clients_is_below_a_megabyte() -> None:
    """The largest page: all of the table's rows and brokers, and the highest --top, of 15 days."""
    assert len(rendered(large(clients=400, top=50)).encode()) < 1_000_000


def test_the_report_of_idle_clients_has_no_division_by_zero() -> None:
    nothing = (0.0, 0.0)
    idle = client(ALICE, nothing, peaks={"producer_byte_rate": 0.0})
    found = with_use(
        findings(ALICE), columns=hours(2, 0.0), bytes_=nothing, brokers=brokers(nothing), clients=(idle,)
    )
    assert isinstance(found.use, Use)
    assert "4 clients moved 0 B in 0 s of records" in text_of(found)
