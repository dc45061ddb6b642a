"""Mistakes that the command for the demonstration names."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from weir.cli import demo as cli_demo
from weir.cli.main import weir


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
