"""The HTML page of `weir verify`: its matrix, its size, and texts of hostile captures."""

from __future__ import annotations

import re
from itertools import cycle, islice

import pytest

from tests.conformance.report.pages import Parsed
from tests.conformance.report.samples import finding
from weir.conformance.report import Groups, render, verify_page
from weir.conformance.report import groups as grouping
from weir.conformance.report.page import PAGE_MAX
from weir.conformance.verify import Finding, R, Traffic

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\u202e\ud800{{ 7*7 }}"


def page(
    *found: Finding, traffic: Traffic | None = None, captures: tuple[str, ...] = ("a.weircap",)
) -> bytes:
    groups = Groups()
    for one in found:
        groups.add(one, captures[0])
    return render(verify_page(groups.report(captures, traffic or Traffic())))


@pytest.mark.parametrize(
    "hostile",
    [finding(api=HOSTILE), finding(path=HOSTILE), finding(found=HOSTILE)],
    ids=["api", "path", "found"],
)
def test_page_escapes_texts_of_peers(hostile: Finding) -> None:
    parsed = Parsed(page(hostile, captures=(HOSTILE,)))
    assert parsed.tags.count("script") == 1
    assert r"\x1b[31m\u202e\ud800" in parsed.text
    assert "alert(1)" in parsed.text
    assert "{{ 7*7 }}" in parsed.text, "a text is no template"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", parsed.text)


def test_page_refers_to_no_network_and_permits_none() -> None:
    html = page(finding(found=HOSTILE))
    parsed = Parsed(html)
    assert parsed.networked() == []
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & {*parsed.tags}
    (policy,) = re.findall(rb'Content-Security-Policy" content="([^"]+)"', html)
    assert policy.startswith(b"default-src &#39;none&#39;")
    assert b"unsafe" not in policy
    assert re.findall(rb"(?:url\(|@import|https?:|//[a-z])", html.partition(b"</head>")[0]) == []


@pytest.mark.slow
def test_page_of_a_million_findings_has_their_groups_only() -> None:
    kinds = [finding(version=version, path=f"field{number}") for version in range(10) for number in range(10)]
    groups = Groups()
    for one in islice(cycle(kinds), 1_000_000):
        groups.add(one)
    html = render(verify_page(groups.report(["a"], Traffic())))
    assert len(html) < 100_000
    assert Parsed(html).tags.count("article") == 10, "versions of a field are one card"
    assert "100,000 times" in Parsed(html).text


@pytest.mark.slow
def test_page_stays_small_with_all_apis_and_versions_that_a_peer_can_invent() -> None:
    traffic = Traffic()
    for key in range(-3000, 3000):
        for version in range(-3, 12):
            traffic.of(key, version).requests += 1
    kinds = [finding(path=f"{number}" + '"' * 400, found="<" * 400) for number in range(20_000)]
    html = page(*kinds, traffic=traffic)
    assert len(html) <= PAGE_MAX
    assert re.search(r"\d+ more groups do not fit", Parsed(html).text)


def test_gravest_and_most_frequent_findings_come_first() -> None:
    rare, often = finding(path="rare"), finding(path="often")
    parsed = Parsed(page(finding(R.UNKNOWN_VERSION, path="note"), rare, often, often))
    order = [word for word in parsed.words if word in ("note", "rare", "often")]
    assert order == ["often", "rare", "note"] or order == ["often", "rare", "note", "note"]


def test_page_without_a_frame_does_not_look_like_success() -> None:
    parsed = Parsed(page())
    assert "No frame was checked" in parsed.text
    assert ("header", "class", "top warning") in parsed.attributes


def test_findings_in_invented_apis_are_counted_by_rule_above_a_number_of_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouping, "GROUPS_MAX", 3)
    known = finding(api="API 500")
    groups = Groups([known.key])
    for number in range(10):
        groups.add(finding(api=f"API {number}"))
    groups.add(known)
    found = {group.first.api: (group.count, group.new) for group in groups.sorted()}
    assert found == {**{f"API {n}": (1, True) for n in range(3)}, "": (7, True), "API 500": (1, False)}
