"""The README's pictures: figures of the published table, rates in each second, and the SVGs drawn of them."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools.pictures import __main__ as pictures
from tools.pictures import cost, rates, svg
from tools.pictures.errors import PictureError
from tools.pictures.recording import CLIENT_ID, Recording
from weir.demo.client_specs import CLIENTS
from weir.demo.measure import Reading, Result, Span
from weir.demo.rows import Scene
from weir.demo.screens import BEFORE, MEASURE, WARM_UP

PAGE = """
# What a request costs

| load | HAProxy (TCP) |
| --- | ---: |
| not of the figures | 1.0 (1.0 to 1.0) |

<!-- figures: begin -->

CPU µs per request of the proxy process, median (least to most) over rounds:

| load | HAProxy (TCP) | Weir, no quotas | Kroxylicious (JVM) | Weir, quotas on | Weir, compiled, quotas on |
| --- | ---: | ---: | ---: | ---: | ---: |
| Metadata | 10.0 (9.0 to 11.0) | 5.0 (5.0 to 5.0) | 20.0 (19.0 to 21.0) | 30.0 (29.0 to 31.0) | \
25.0 (24.0 to 26.0) |
| Fetch 500 KB | 1,000.5 (9.0 to 11.0) | 5.0 (5.0 to 5.0) | 400.0 (1.0 to 500.0) | 300.0 (1.0 to 2.0) | \
250.0 (1.0 to 2.0) |

Ratios of CPU per request within a round, median (least to most) over rounds:

| load | Weir, quotas on ÷ HAProxy (TCP) |
| --- | ---: |
| Metadata | 3.00 (2.90 to 3.10) |

- 2026-11-21, 2 cores (AMD EPYC), Linux 6.18, Python 3.11.7, 3 rounds of 2.0 s in front of kafka. \
Versions: weir d75fd4d8c67d; kafka 3.9.1.

<!-- figures: end -->
"""
SPEC = next(spec for spec in CLIENTS if spec.client_id == CLIENT_ID)


def elements(picture: str, tag: str) -> list[ET.Element]:
    """Return the elements of an SVG with this tag."""
    return list(ET.fromstring(picture).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))  # noqa: S314  our own picture


def texts(picture: str) -> list[str]:
    """Return the texts of an SVG, in the order of drawing."""
    return [element.text or "" for element in elements(picture, "text")]


def bars(picture: str, kind: str) -> list[float]:
    """Return the widths (pixels) of the bars of one class, without the square in the legend."""
    found = [element for element in elements(picture, "rect") if element.get("class") == kind]
    return [float(element.get("width") or 0) for element in found[1:]]


def test_costs_are_those_of_the_table_between_the_markers() -> None:
    found = cost.parse(PAGE)
    assert found.us == {"Metadata": [10.0, 20.0, 30.0, 25.0], "Fetch 500 KB": [1000.5, 400.0, 300.0, 250.0]}
    assert found.measured == "Measured 2026-11-21, 2 cores (AMD EPYC), median of 3 rounds, Weir d75fd4d."


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<!-- figures: begin -->", "", "no figures between"),
        ("<!-- figures: end -->", "", "no figures between"),
        (
            "CPU µs per request of the proxy process",
            "CPU ms per request of the proxy process",
            "no table 'CPU",
        ),
        ("Kroxylicious (JVM) |", "Kroxylicious 1.0 |", r"the table has no Kroxylicious \(JVM\): its head is"),
        ("30.0 (29.0 to 31.0)", "30.0", "row 'Metadata' has no median .* in column 4"),
        (" | 25.0 (24.0 to 26.0)", "", "row 'Metadata' has no median .* in column 5"),
        ("- 2026-11-21, 2 cores", "- 2 cores", "no line with date"),
        ("weir d75fd4d8c67d;", "", "no line with date"),
    ],
)
def test_a_changed_table_is_refused(old: str, new: str, message: str) -> None:
    assert PAGE.count(old) == 1
    with pytest.raises(PictureError, match=message):
        cost.parse(PAGE.replace(old, new))


def test_the_cost_picture_has_a_bar_and_a_label_for_each_figure() -> None:
    picture = cost.draw(cost.parse(PAGE))
    haproxy, kroxylicious, plain, compiled = (bars(picture, f"c{number}") for number in range(4))
    assert [len(found) for found in (haproxy, kroxylicious, plain, compiled)] == [2, 2, 2, 2]
    assert plain[0] == pytest.approx(3 * haproxy[0], abs=0.2)
    assert kroxylicious[0] == pytest.approx(2 * haproxy[0], abs=0.2)
    assert compiled[0] == pytest.approx(2.5 * haproxy[0], abs=0.2)
    assert haproxy[1] == pytest.approx(plain[0])  # the longest bars of two scales
    shown = texts(picture)
    assert [label for label in cost.SERIES.values() if label not in shown] == []
    figures = [label for label in shown if re.fullmatch(r"[\d.]+", label)]
    assert figures == ["10.0", "20.0", "30.0", "25.0", "1000.5", "400.0", "300.0", "250.0"]
    assert {"Metadata", "Fetch 500 KB", "another scale"} <= set(shown)
    assert shown[-1].startswith("Measured 2026-11-21")


def test_no_bar_and_no_text_leaves_the_cost_picture() -> None:
    root = ET.fromstring(cost.draw(cost.parse(PAGE)))  # noqa: S314  our own picture
    for element in root:
        right = float(element.get("x") or 0) + float(element.get("width") or 0)
        assert right <= svg.WIDTH
        assert float(element.get("y") or 0) <= float(root.get("height") or 0)


def test_the_committed_cost_picture_shows_the_published_table() -> None:
    drawn = cost.draw(cost.parse(pictures.TABLE.read_text("utf-8")))
    assert (pictures.IMAGES / "cost.svg").read_text("utf-8") == drawn, "run python -m tools.pictures cost"


@pytest.mark.parametrize("name", ["before-after.svg", "cost.svg", "demo.svg"])
def test_a_committed_picture_is_svg_with_a_date_and_loads_nothing(name: str) -> None:
    picture = (pictures.IMAGES / name).read_text("utf-8")
    assert any(re.search(r"20\d\d-\d\d-\d\d", text.replace("\xa0", " ")) for text in texts(picture))
    assert set(re.findall(r"https?://[^\"\s]+", picture)) <= {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
    }


def test_bytes_between_two_samples_are_spread_evenly() -> None:
    samples = [(10.0, 0), (10.5, 100), (12.5, 300), (13.2, 1000)]
    assert rates.by_second(samples, 10.0) == pytest.approx([150.0, 100.0, 550.0])
    assert rates.by_second(samples, 11.5) == pytest.approx([100.0])


@pytest.mark.parametrize("samples", [[], [(1.0, 5)], [(1.0, 5), (1.9, 9)]])
def test_samples_of_less_than_a_second_are_refused(samples: list[tuple[float, int]]) -> None:
    with pytest.raises(PictureError, match="do not cover a second"):
        rates.by_second(samples, 1.0)


def test_the_rate_picture_has_a_step_for_each_second() -> None:
    picture = rates.draw(
        rates.Rates([5e6, 5e6], [5e6, 1e6, 1e6, 1e6, 1e6], 1_000_000, 5_000_000), "Measured 2026-11-23"
    )
    (line,) = [element for element in elements(picture, "path") if element.get("class") == "line"]
    points = [tuple(map(float, point.split())) for point in (line.get("d") or "")[1:].split("L")]
    assert len(points) == 2 * 7
    assert [y for _x, y in points] == [points[0][1]] * 6 + [points[-1][1]] * 8
    assert all(left[0] <= right[0] for left, right in pairwise(points))
    assert {
        "One producer before and after its quota of 1 MB/s",
        "quota 1 MB/s",
        "Measured 2026-11-23",
    } <= set(texts(picture))


def recorded(speed_before: int, speed_after: int) -> Recording:
    """Return a recording of 5 s before and 25 s after the quota at these rates (bytes/s), begun at 100 s."""
    recording = Recording()
    scene = Scene("A mock cluster", "a:1", 8, 15, 5)
    recording.open(scene)
    start = Reading(100.0, 700)
    before = Span(start, Reading(105.0, 700 + 5 * speed_before))
    for second in range(1, 6):
        ended = Reading(100.0 + second, 700 + second * speed_before)
        recording.update(BEFORE, second / 5, [Result(SPEC, 1, Span(start, ended))])
    for second in range(1, 26):
        ended = Reading(105.0 + second, before.ended.payload_bytes + second * speed_after, 1)
        results = [Result(SPEC, 1, before, Span(before.ended, ended))]
        recording.update(WARM_UP if second < 10 else MEASURE, second / 25, results)
    recording.close(scene, results)
    return recording


def test_a_recording_has_the_producers_rates_before_and_after_the_quota() -> None:
    found = recorded(5_000_000, 1_000_000).rates()
    assert found.before == pytest.approx([5e6] * 5)
    assert found.after == pytest.approx([1e6] * 20)
    assert (found.quota, found.demand) == (1_000_000, 5_000_000)


def test_a_recorded_terminal_shows_command_table_and_verdict() -> None:
    picture = recorded(5_000_000, 1_000_000).terminal("2026-11-23")
    shown = " ".join(texts(picture)).replace("\xa0", " ")
    assert "$ make demo" in shown
    assert "make demo, 2026-11-23" in shown
    assert re.search(r"steady +producer +5\.00 +1\.00 +1\.00", shown)
    assert "holds +0%" in shown
    assert "Passed: " in shown


def test_a_recording_without_a_run_has_no_picture() -> None:
    with pytest.raises(PictureError, match="no results"):
        Recording().rates()
    with pytest.raises(PictureError, match="no results"):
        Recording().terminal("2026-11-23")


def test_pictures_writes_the_named_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, "utf-8")
    monkeypatch.setattr(pictures, "ROOT", tmp_path)
    monkeypatch.setattr(pictures, "TABLE", page)
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    pictures.main(["cost"])
    assert capsys.readouterr().out == "wrote cost.svg\n"
    assert (tmp_path / "cost.svg").read_text("utf-8") == cost.draw(cost.parse(PAGE))


def test_pictures_ends_with_a_message_about_an_unknown_name() -> None:
    with pytest.raises(SystemExit, match="no pictures prices: name some of cost, demo"):
        pictures.main(["prices"])
