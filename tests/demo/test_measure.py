"""The quota file and the free ports of the demonstration."""

from __future__ import annotations

import random

import pytest

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
