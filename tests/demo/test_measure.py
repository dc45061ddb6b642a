"""The quota file, the free ports and the error messages of the demonstration."""

from __future__ import annotations

import random

import pytest
from click.testing import CliRunner

from weir.cli import demo as cli_demo
from weir.cli.main import weir
from weir.demo.client_specs import CLIENTS, quota_file, quota_table
from weir.demo.errors import DemoError
from weir.demo.proxy_process import PORTS, free_ports
from weir.quotas import parse


def test_the_demos_quota_file_equals_its_clients_quotas() -> None:
    text = quota_file(CLIENTS)
    assert parse(text) == quota_table(CLIENTS)
    assert '[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 500000\n' in text
    assert 'client_id = "steady"\npacing = "smooth"\nproducer_byte_rate = 1000000\n' in text
    assert "audit" not in text
    assert "newcomer" not in text


def test_demo_ports_are_drawn_until_all_are_free() -> None:
    asked: list[int] = []

    def is_free(port: int) -> bool:
        asked.append(port)
        return len(asked) > 1  # the first draw fails

    draws = iter([21_000, 22_000])
    assert free_ports([0, 1, 5], is_free, lambda _low, _high: next(draws)) == (22_000, "22001-22006")
    assert asked == [21_000, 22_000, 22_001, 22_002, 22_006]


def test_ports_stay_in_range_whatever_the_node_ids() -> None:
    listen, ports = free_ports([0, 30_000], lambda _port: True, random.Random(1).randint)
    assert (listen, ports) == (PORTS[0], f"{PORTS[0] + 1}-{PORTS[0] + 30_001}")
    with pytest.raises(DemoError, match="node ids span 60001"):
        free_ports([0, 60_000], lambda _port: True)
    with pytest.raises(DemoError, match="no room"):
        free_ports([0], lambda _port: False)


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
