"""Rates, verdicts, pace and free ports of the demonstration, without processes."""

from __future__ import annotations

import random

import pytest

from weir.demo.client_specs import CLIENTS, ClientSpec, quota_file, quota_table
from weir.demo.errors import DemoError
from weir.demo.measure import Reading, Result, Span
from weir.demo.proxy_process import PORTS, free_ports
from weir.quotas import parse

LIMITED = ClientSpec("app", "producer", 1_000_000)
FREE = ClientSpec("free", "consumer", None, demand=1_000_000)
FAST = Span(Reading(0.0), Reading(5.0, 25_000_000))
"""Clients without quotas at 5 MB/s."""


def result(
    spec: ClientSpec, payload_bytes: int, *, throttled: int = 0, brokers: int = 1, before: Span = FAST
) -> Result:
    after = Span(Reading(5.0, 1_000), Reading(15.0, 1_000 + payload_bytes, throttled))
    return Result(spec, brokers, before, after)


def test_a_demo_rate_counts_the_bytes_between_two_readings() -> None:
    assert result(LIMITED, 9_000_000).rate == 900_000
    assert result(LIMITED, 9_000_000).deviation == pytest.approx(-0.1)
    start = Reading(5.0, 1_000)
    assert Span(start, start).rate == 0


def test_a_quota_counts_once_for_each_broker() -> None:
    spread = result(LIMITED, 29_000_000, throttled=1, brokers=3)
    assert spread.quota == 3_000_000
    assert not spread.failure


@pytest.mark.parametrize(
    ("spec", "payload_bytes", "throttled", "failure"),
    [
        (LIMITED, 8_000_000, 1, ""),
        (LIMITED, 12_000_000, 1, ""),
        (LIMITED, 7_900_000, 1, "below quota"),
        (LIMITED, 12_100_000, 1, "above quota"),
        (LIMITED, 10_000_000, 0, "never throttled"),
        (FREE, 10_000_000, 0, ""),
        (FREE, 10_000_000, 1, "throttled without a quota"),
        (FREE, 7_900_000, 0, "slowed down"),
        (FREE, 12_100_000, 0, "faster than meant"),
    ],
)
def test_a_demo_client_passes_or_fails_by_its_rate_and_throttling(
    spec: ClientSpec, payload_bytes: int, throttled: int, failure: str
) -> None:
    assert result(spec, payload_bytes, throttled=throttled).failure == failure


@pytest.mark.parametrize(
    ("payload_bytes", "throttled", "failure"),
    [
        (6_000_001, 0, ""),
        (6_000_000, 0, "not above its quota before"),
        (25_000_000, 1, "throttled without a quota"),
    ],
)
def test_a_demo_client_fails_that_was_slow_or_throttled_before_its_quota(
    payload_bytes: int, throttled: int, failure: str
) -> None:
    before = Span(Reading(0.0), Reading(5.0, payload_bytes, throttled))
    assert result(LIMITED, 10_000_000, throttled=throttled + 1, before=before).failure == failure


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
