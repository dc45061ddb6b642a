"""Output of the demonstration: plain text without control codes, a live table, JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from weir.cli import demo as cli_demo
from weir.cli.main import weir
from weir.demo.client_specs import CLIENTS
from weir.demo.measure import Reading, Result, Span
from weir.demo.rows import Scene, as_json, closing
from weir.demo.screens import BEFORE, MEASURE, RELOAD, START, WARM_UP, PlainScreen, Screen

SCENE = Scene("A mock cluster of 3 brokers", "a:1,b:2", 8, 15, 5)


def results(share: float = 1.0) -> list[Result]:
    """Return results with all clients at this share of their quota after ten seconds."""
    found = []
    for spec in CLIENTS:
        brokers = 3 if spec.every_broker else 1
        target = (spec.quota or 0) * brokers or spec.demand
        throttled = 0 if spec.quota is None else 12
        now = Reading(
            10.0, round(10 * target * share), throttled, 110 * bool(throttled), 250 * bool(throttled)
        )
        before = Span(Reading(0.0), Reading(5.0, 5 * spec.demand))
        found.append(Result(spec, brokers, before, Span(Reading(0.0), now)))
    return found


def play(screen: Screen) -> None:
    with screen:
        screen.begin(START)
        screen.open(SCENE)
        for phase in (BEFORE, RELOAD, WARM_UP, MEASURE):
            for quarter in range(5):
                screen.update(phase, quarter / 4, results())
        screen.close(SCENE, results())


def test_demo_closing_line_passes_or_names_the_failed_clients() -> None:
    assert closing(results(1.19))[0].startswith("Passed: every client with a quota was above it before")
    assert closing(results(1.3))[0].startswith("Failed: orders (above quota), shared (above quota)")
    assert "swings by up to 20 %" in closing(results())[1]


def test_plain_demo_output_has_no_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    play(PlainScreen())
    shown = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert shown.isascii()
    lines = shown.splitlines()
    assert [line[:4] for line in lines if "orders 1.00, shared 1.00" in line] == [
        " 25%",
        " 50%",
        " 75%",
        "100%",
    ] * 4
    assert lines[0] == f"{START} ..."
    assert lines[-4].startswith("Passed: every client with a quota was above it before, and is within 20 %")


def test_demo_json_has_bytes_per_second() -> None:
    found: dict[str, Any] = msgspec.json.decode(as_json(SCENE, results(0.5)))
    assert (found["upstream"], found["seconds"], found["tolerance"], found["passed"]) == (
        "a:1,b:2",
        15,
        0.2,
        False,
    )
    assert found["entities"][4] == {
        "client_id": "newcomer",
        "role": "producer",
        "quota_entity": "client-id <default>",
        "clients": 1,
        "brokers": 1,
        "quota_bytes_per_s": 500_000,
        "demand_bytes_per_s": 5_000_000,
        "pacing": "kafka",
        "rate_without_quotas_bytes_per_s": 5_000_000,
        "rate_bytes_per_s": 250_000,
        "deviation": -0.5,
        "throttled_responses": 12,
        "throttle_max_ms": 250,
        "passed": False,
        "failure": "below quota",
    }


def test_demo_without_confluent_kafka_is_one_line_with_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_demo, "find_spec", lambda _name: None)
    outcome = CliRunner().invoke(weir, ["demo"])
    assert outcome.exit_code == 2
    assert outcome.output == (
        "weir: the demonstration needs confluent-kafka: install it beside Weir, or use `make demo`\n"
    )


@pytest.mark.parametrize(
    ("upstream", "words"),
    [
        ("nonsense", "upstream is 'nonsense', must be HOST:PORT, for example kafka-1:9092 or [::1]:9092\n"),
        (
            "127.0.0.1:1",
            "no upstream broker can be reached: 127.0.0.1:1: connection refused: check --upstream\n",
        ),
    ],
)
def test_demo_reports_an_unreachable_upstream_with_exit_code_2(upstream: str, words: str) -> None:
    outcome = CliRunner().invoke(weir, ["demo", "--upstream", upstream])
    assert (outcome.exit_code, outcome.stderr) == (2, f"weir: {words}")
